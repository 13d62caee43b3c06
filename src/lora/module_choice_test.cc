#include "lora/module_choice.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace chorus {
namespace {

bool includes(const Json& config, const std::string& module) {
  return ModuleChoice::parse(config, "c", std::make_shared<PatternWork>("c", 1000)).includes(module);
}

// The results of PEFT's check_target_module_exists, whose patterns for the layer number are greedy:
// ".*\.[^.]*\.(\d+)\." and ".*\.PATTERN\.(\d+)\.".
TEST(ModuleChoiceTest, TheLayerIsTheLastNumberOfAName) {
  Json config = {{"target_modules", {"w1", "q_proj"}}, {"layers_to_transform", {0, 1}}};
  EXPECT_TRUE(includes(config, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(includes(config, "model.layers.2.self_attn.q_proj"));
  EXPECT_TRUE(includes(config, "model.layers.5.block_sparse_moe.experts.1.w1"));
  EXPECT_FALSE(includes(config, "model.layers.1.block_sparse_moe.experts.5.w1"));
  EXPECT_FALSE(includes(config, "layers.1.q_proj")) << "needs two names before the number";
  EXPECT_FALSE(includes(config, "model.layers.q_proj"));
  EXPECT_FALSE(includes(config, "model.layers.-1.q_proj"));

  config["layers_pattern"] = {"layers"};
  EXPECT_TRUE(includes(config, "model.layers.1.block_sparse_moe.experts.5.w1"));
  EXPECT_FALSE(includes(config, "model.layers.5.block_sparse_moe.experts.1.w1"));
  EXPECT_FALSE(includes(config, "model.h.1.q_proj"));

  config["layers_pattern"] = {"h", "experts", "layers"};
  EXPECT_TRUE(includes(config, "model.layers.5.block_sparse_moe.experts.1.w1")) << "the first pattern that matches";
  EXPECT_TRUE(includes(config, "model.layers.1.self_attn.q_proj"));
}

}  // namespace
}  // namespace chorus
