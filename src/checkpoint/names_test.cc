#include "checkpoint/names.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(NamesTest, ScalesAndTheirWeightsNameEachOther) {
  for (const bool grouped : {false, true}) {
    const std::string scales = scaleName("transformer.layers.0.mlp.fc.weight", grouped);
    EXPECT_EQ(scales, grouped ? "transformer.layers.0.mlp.fc.weights_scaling_factor"
                              : "transformer.layers.0.mlp.fc.per_channel_scale");
    const auto weight = weightOfScales(scales);
    ASSERT_TRUE(weight);
    EXPECT_EQ(weight->name, "transformer.layers.0.mlp.fc.weight");
    EXPECT_EQ(weight->grouped, grouped);
  }
  for (const char* other : {"lm_head.weight", "a.xper_channel_scale", "per_channel_scal", ""}) {
    EXPECT_FALSE(weightOfScales(other)) << other;
  }
}

TEST(NamesTest, AModuleIsATensorsNameWithoutItsLastPart) {
  EXPECT_EQ(moduleOf("mlp.proj.weight"), "mlp.proj");
  EXPECT_EQ(moduleOf(kHeadTensor), "lm_head");
}

TEST(NamesTest, ListsHaveTheNumberOfTheOtherNames) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  EXPECT_EQ(listSome(std::span(names).first(2)), "a, b");
  EXPECT_EQ(listSome(names), "a, b, c, d, e, f, g, h and 2 more");
  EXPECT_EQ(listSome(std::span(names).first(8), 201'326'592), "a, b, c, d, e, f, g, h and 201326584 more");
}

}  // namespace
}  // namespace chorus
