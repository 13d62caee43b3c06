#include "runtime/memory_needs.h"

#include <gmock/gmock.h>

#include "base/testing/error_of.h"
#include "engine/testing/random_engine.h"
#include "runtime/adapter_cache/adapter_sizing.h"
#include "runtime/memory_plan.h"

namespace chorus {
namespace {

using testing::HasSubstr;

class MemoryNeedsTest : public RandomEngineTest {};

TEST_F(MemoryNeedsTest, NeedsAreThoseOfAnEngineForOneSequence) {
  const auto engines = RankGroup::loadEngines(makeEngine(randomModel({.tp_size = 2, .pp_size = 1}), smallBuild(), 1));
  const Engine& engine = *engines.front();
  const BuildConfig& build = engine.buildConfig();
  const int64_t blocks = (build.max_seq_len + build.tokens_per_block - 1) / build.tokens_per_block;
  const MemoryPlan plan = planMemory(engines, {.kv_blocks = blocks}, {}, 0);
  const MemoryNeeds needs = leastMemory(engine.config(), build, plan.weights(), {}, executor::PeftCacheConfig());
  EXPECT_EQ(needs.weights, plan.weights());
  EXPECT_EQ(needs.activations, plan.activations());
  EXPECT_EQ(needs.kv_sequence, plan.kvCache());
  EXPECT_EQ(needs.adapters, build.lora_plugin ? AdapterSizing(engine).fullAdapter(build.max_lora_rank).bytes : 0);
  executor::PeftCacheConfig of_a_share;
  of_a_share.setDeviceCachePercent(0.5f);
  EXPECT_EQ(leastMemory(engine.config(), build, 0, {}, of_a_share).adapters, needs.adapters);
}

TEST(MemoryNeedsText, AModelThatDoesNotFitIsOneSentence) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const MemoryNeeds needs = {.weights = 8000 * kMiB,
                             .kv_sequence = 500 * kMiB,
                             .activations = 300 * kMiB,
                             .adapters = 200 * kMiB,
                             .max_seq_len = 4096};
  EXPECT_TRUE(needs.fit(9000 * kMiB));
  EXPECT_EQ(errorOf([&] { needs.check(9000 * kMiB); }), "");
  const std::string error = errorOf([&] { needs.check(9000 * kMiB - 1); });
  for (const char* part :
       {"the model does not fit: it needs 9000.0 MiB", "weights 8000.0",
        "KV cache of one sequence of 4096 tokens 500.0", "activations 300.0", "adapters 200.0",
        "9000.0 MiB of memory are free", "--max_seq_len", "--max_num_tokens", "--max_lora_rank", "--quantize"}) {
    EXPECT_THAT(error, HasSubstr(part));
  }
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace chorus
