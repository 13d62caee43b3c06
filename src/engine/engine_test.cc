#include "engine/engine.h"

#include "engine/testing/random_engine.h"

namespace chorus {
namespace {

using EngineTest = RandomEngineTest;

TEST_F(EngineTest, AStepReadsTheExpertsOfItsRowsAndNoEmbedding) {
  ModelConfig config = randomModel({});
  config.architecture = "MixtralForCausalLM";
  config.hidden_act = "swiglu";
  config.extra["moe"] = {{"num_experts", 5}, {"top_k", 2}, {"normalization_mode", 1}};
  config.finalize("test");
  const auto engine = Engine::load(makeEngine(config, smallBuild(), 1));
  const size_t all = engine->stepBytes(100);
  const size_t experts = (all - engine->stepBytes(1)) / 3 * 5;  // one row has two of the five
  EXPECT_GT(experts, all / 2);
  EXPECT_EQ(engine->stepBytes(2), all - experts / 5);
  EXPECT_EQ(engine->stepBytes(3), all);
  EXPECT_LT(all, engine->weightBytes() - 45 * 24 * 2);

  const auto dense = Engine::load(makeEngine(randomModel({}), smallBuild(), 2));
  EXPECT_EQ(dense->stepBytes(1), dense->stepBytes(100));
  EXPECT_GT(dense->stepBytes(1), 0u);
}

}  // namespace
}  // namespace chorus
