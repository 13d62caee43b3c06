// Windows of attention: a model's own and those of a session.
#include <gtest/gtest.h>

#include "engine/testing/random_engine.h"

namespace chorus {
namespace {

class AttentionWindowsTest : public RandomEngineTest {
 protected:
  // The logits of every token of one sequence, on two pipeline stages.
  // fields: of the checkpoint; windows: SessionOptions::attention_windows.
  std::vector<float> logits(const Json& fields, const std::vector<int32_t>& windows) {
    ModelConfig config = randomModel({.pp_size = 2});
    config.architecture = "MistralForCausalLM";
    config.extra = fields;
    constexpr uint64_t kSeed = 1;  // the weights are always the same
    std::filesystem::remove_all(dir_ / std::to_string(kSeed));
    const auto engine = makeEngine(config, smallBuild(), kSeed);
    RankGroup ranks(RankGroup::loadEngines(engine), {.threads = 2}, {.kv_blocks = 24, .attention_windows = windows});
    std::vector<int32_t> blocks(24);
    StepInput input = firstStep(30, blocks, 3);
    input.logits_rows.resize(30);
    std::iota(input.logits_rows.begin(), input.logits_rows.end(), 0);
    const auto all = ranks.run(input);
    return {all.begin(), all.end()};
  }
  // Whether the logits before `row` are equal.
  static bool sameBefore(const std::vector<float>& a, const std::vector<float>& b, int64_t row) {
    return std::equal(a.begin(), a.begin() + row * 45, b.begin());
  }
};

TEST_F(AttentionWindowsTest, ASessionsWindowIsAModelsWindow) {
  const auto all = logits(Json::object(), {});
  const auto nine = logits({{"sliding_window", 9}}, {});
  EXPECT_NE(all, nine);
  EXPECT_TRUE(sameBefore(all, nine, 9)) << "the first nine tokens see everything";
  EXPECT_FALSE(sameBefore(all, nine, 10));
  EXPECT_EQ(logits(Json::object(), {9}), nine);
  EXPECT_EQ(logits(Json::object(), {64}), all);
}

TEST_F(AttentionWindowsTest, TheNarrowerOfBothCountsInEveryLayer) {
  const Json types = {"sliding_attention", "full_attention", "sliding_attention"};
  const auto local = logits({{"sliding_window", 9}, {"layer_types", types}}, {});
  EXPECT_NE(local, logits({{"sliding_window", 9}}, {}));
  EXPECT_EQ(logits({{"sliding_window", 9}, {"layer_types", types}}, {30, 40}), local);
  EXPECT_EQ(logits(Json::object(), {9, 30}), local) << "the windows repeat: the third layer has the first one's";
  EXPECT_EQ(logits({{"sliding_window", 20}}, {9, 64, 9}), logits(Json::object(), {9, 20, 9}));
}

}  // namespace
}  // namespace chorus
