#include "engine/engine_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(EngineLayoutTest, GatedHalvesBecomeOneLinearAndATiedHeadTheTablesCopy) {
  const WeightRow embedding{
      .name = "transformer.vocab_embedding.weight", .shape = {11, 4}, .role = WeightRole::kEmbedding};
  const WeightRow fc{.name = "transformer.layers.{}.mlp.fc.weight", .shape = {6, 4}};
  const WeightRow gate{.name = "transformer.layers.{}.mlp.gate.weight", .shape = {6, 4}};
  const WeightRow gate_bias{.name = "transformer.layers.{}.mlp.gate.bias", .shape = {6}, .role = WeightRole::kBias};
  const std::vector<RankTensor> tensors{
      {"transformer.vocab_embedding.weight", {11, 4}, DType::kBFloat16, &embedding, -1},
      {"transformer.layers.0.mlp.fc.weight", {6, 4}, DType::kBFloat16, &fc, 0},
      {"transformer.layers.0.mlp.gate.weight", {6, 4}, DType::kBFloat16, &gate, 0},
      {"transformer.layers.0.mlp.gate.bias", {6}, DType::kBFloat16, &gate_bias, 0}};
  EXPECT_EQ(placeInEngine(tensors[1]).row_begin, 0);
  EXPECT_EQ(placeInEngine(tensors[2]).row_begin, 6);
  EXPECT_EQ(placeInEngine(tensors[2]).name, "transformer.layers.0.mlp.fc_gate");

  ModelConfig config;
  config.vocab_size = 11;
  config.hidden_size = 4;
  config.tie_word_embeddings = true;
  const auto engine = engineTensors(tensors, config);
  ASSERT_EQ(engine.size(), 4u);
  EXPECT_EQ(engine[0].kind, EngineTensorKind::kTable);
  EXPECT_EQ(engine[1].rows, 12);
  EXPECT_EQ(engine[1].cols, 4);
  EXPECT_EQ(engine[2].dtype, DType::kFloat32);
  EXPECT_EQ(engine[3].name, "lm_head");
  EXPECT_EQ(engine[3].rows, 11);
  EXPECT_EQ(linearPlace(gate, 6)->row_begin, 6);
  EXPECT_EQ(linearPlace(embedding, 11), std::nullopt);
}

TEST(EngineLayoutTest, ATiedHeadIsTheRanksShareOfTheTable) {
  ModelConfig config;
  config.vocab_size = 11;
  config.mapping.tp_size = 4;
  EXPECT_EQ(vocabularyShare(config), 3);
  EXPECT_EQ(tiedHead(config, 1).begin, 3);
  EXPECT_EQ(tiedHead(config, 1).rows, 3);
  EXPECT_EQ(tiedHead(config, 3).begin, 9);
  EXPECT_EQ(tiedHead(config, 3).rows, 2);
  config.vocab_size = 5;  // shares of two: the last rank has none
  EXPECT_EQ(tiedHead(config, 3).rows, 0);
  config.use_parallel_embedding = true;
  EXPECT_EQ(tiedHead(config, 3).begin, 0);
  EXPECT_EQ(tiedHead(config, 3).rows, 2);
}

}  // namespace
}  // namespace chorus
