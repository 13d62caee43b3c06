#include "formats/deepspeed_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/file.h"
#include "base/testing/error_of.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// A file that tests/oracle/deepspeed_checkpoints.py made.
class States {
 public:
  explicit States(const std::string& name)
      : bytes_(readFile(test::sourceDir() / "tests/fuzz/deepspeed_states_fuzz" / name, size_t{1} << 20)),
        states(parseDeepSpeedStates(std::as_bytes(std::span(bytes_)), name)) {}

 private:
  std::string bytes_;

 public:
  DeepSpeedStates states;
};

std::vector<float> valuesOf(const TensorView& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}
std::string refusal(const std::string& name) {
  return errorOf([&] { States file(name); });
}

TEST(DeepSpeedStatesTest, ReadsTheFieldsAndSkipsObjects) {
  const States file("whole");
  const DeepSpeedStates& states = file.states;
  ASSERT_EQ(states.module.size(), 1u);
  EXPECT_EQ(states.module[0].first, "w");
  EXPECT_THAT(states.module[0].second.shape, ElementsAre(3, 2));
  EXPECT_THAT(valuesOf(states.module[0].second), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(states.buffer_names, ElementsAre("b"));
  ASSERT_EQ(states.param_shapes.size(), 1u);
  EXPECT_EQ(states.param_shapes[0].at(0).name, "w");
  EXPECT_THAT(states.param_shapes[0].at(0).shape, ElementsAre(2, 3));
  EXPECT_EQ(states.frozen_shapes.at(0).name, "f");
  EXPECT_THAT(valuesOf(states.frozen_fragments.at(0).second), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(states.shared_params, ElementsAre(Pair("v", "w")));
  EXPECT_TRUE(states.partitions.empty());
}

TEST(DeepSpeedStatesTest, ReadsTheOptimizersPartitions) {
  for (const char* name : {"optimizer", "attributes"}) {
    const States file(name);
    EXPECT_EQ(file.states.zero_stage, 3) << name;
    EXPECT_EQ(file.states.partition_count, 2);
    ASSERT_EQ(file.states.partitions.size(), 1u);
    EXPECT_THAT(valuesOf(file.states.partitions[0]), ElementsAre(0, 1, 2, 3, 4, 5));
  }
  const States nothing("none");
  EXPECT_TRUE(nothing.states.module.empty());
  EXPECT_EQ(nothing.states.zero_stage, 0);
}

TEST(DeepSpeedStatesTest, CommandsAreRefusedAlsoWhereOtherObjectsAreSkipped) {
  EXPECT_THAT(refusal("command"), AllOf(HasSubstr("posix.system"), HasSubstr("refused")));
}

TEST(DeepSpeedStatesTest, FieldsOfOtherTypesAreNamed) {
  EXPECT_THAT(refusal("list"), HasSubstr("it has no dictionary"));
  for (const char* field :
       {"module", "buffer_names", "param_shapes", "frozen_param_shapes", "frozen_param_fragments", "shared_params"}) {
    EXPECT_THAT(refusal(std::string("bad_") + field), HasSubstr(std::string("'") + field + "' is not"));
  }
  EXPECT_THAT(refusal("bad_extents"), HasSubstr("'param_shapes' is not a dictionary of shapes"));
  EXPECT_THAT(refusal("bad_stage"), HasSubstr("'zero_stage' is not a number"));
  EXPECT_THAT(refusal("bad_count"), HasSubstr("'partition_count' is not a count"));
  EXPECT_THAT(refusal("bad_groups"), HasSubstr("'fp32_flat_groups' is not a list of flat tensors"));
}

}  // namespace
}  // namespace chorus
