#include "models/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

ModelConfig configWith(PositionEmbedding positions, int32_t heads) {
  ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = heads * 16;
  config.num_hidden_layers = 2;
  config.num_attention_heads = heads;
  config.hidden_act = "gelu";
  config.q_scaling = 2;
  config.position_embedding_type = positions;
  config.finalize("c");
  return config;
}
std::vector<float> slopesWith(PositionEmbedding positions) {
  return alibiSlopes(layerSpec(configWith(positions, 8)).attention.alibi);
}

TEST(ModelSpecTest, SlopesOfAPowerOfTwoOfHeads) {
  EXPECT_THAT(alibiSlopes(8),
              ElementsAre(1.0f / 2, 1.0f / 4, 1.0f / 8, 1.0f / 16, 1.0f / 32, 1.0f / 64, 1.0f / 128, 1.0f / 256));
  EXPECT_THAT(alibiSlopes(1), ElementsAre(1.0f / 256));
}

// 2^(-8/4)^i for i = 1 to 4, then 2^(-8/8)^i for i = 1 and 3.
TEST(ModelSpecTest, SlopesOfSixHeads) {
  EXPECT_THAT(alibiSlopes(6), ElementsAre(1.0f / 4, 1.0f / 16, 1.0f / 64, 1.0f / 256, 1.0f / 2, 1.0f / 8));
}

// 2^(-8/16)^i for i = 1 to 16, then 2^(-8/32)^i for i = 1, 3, 5, ...
TEST(ModelSpecTest, SlopesThatAreNoPowersOfTwo) {
  const std::vector<float> slopes = alibiSlopes(20);
  ASSERT_EQ(slopes.size(), 20);
  EXPECT_THAT(slopes[0], FloatEq(std::sqrt(0.5f)));
  EXPECT_THAT(slopes[15], FloatEq(1.0f / 256));
  EXPECT_THAT(slopes[16], FloatEq(std::pow(2.0f, -0.25f)));
  EXPECT_THAT(slopes[19], FloatEq(std::pow(2.0f, -1.75f)));
}

TEST(ModelSpecTest, AlibiWithScaleScalesTheSlopes) {
  EXPECT_THAT(slopesWith(PositionEmbedding::kAlibi), alibiSlopes(8));
  EXPECT_THAT(slopesWith(PositionEmbedding::kRopeGptNeox), ElementsAre());
  // Scores are divided by q_scaling * sqrt(head size) = 8.
  std::vector<float> scaled = alibiSlopes(8);
  for (float& slope : scaled) slope /= 8;
  EXPECT_THAT(slopesWith(PositionEmbedding::kAlibiWithScale), scaled);
  EXPECT_EQ(layerSpec(configWith(PositionEmbedding::kAlibi, 8)).attention.rope.kind, RopeKind::kNone);
}

TEST(ModelSpecTest, ARankHasTheSlopesOfItsHeads) {
  const ModelConfig config = configWith(PositionEmbedding::kAlibi, 6);
  const ModelSpec spec = modelSpec(config, layerSpec(config));
  const Mapping mapping = {.tp_size = 2, .pp_size = 2};
  const auto slopesOf = [&](int32_t rank) {
    return alibiSlopes(rankSpec(spec, mapping, rank).layers.at(0).attention.alibi);
  };
  EXPECT_THAT(slopesOf(2), ElementsAre(1.0f / 4, 1.0f / 16, 1.0f / 64));
  EXPECT_THAT(slopesOf(3), ElementsAre(1.0f / 256, 1.0f / 2, 1.0f / 8));
}

// A copy of the slopes in every layer would take 1 GB in the largest models that a config can describe.
TEST(ModelSpecTest, LayersShareOneListOfSlopes) {
  const ModelConfig config = configWith(PositionEmbedding::kAlibi, 6);
  const ModelSpec spec = rankSpec(modelSpec(config, layerSpec(config)), {.tp_size = 2, .pp_size = 1}, 1);
  EXPECT_EQ(spec.layers.at(1).attention.alibi, spec.layers.at(0).attention.alibi);
}

}  // namespace
}  // namespace chorus
