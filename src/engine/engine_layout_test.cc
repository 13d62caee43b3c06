#include "engine/engine_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(EngineLayoutTest, GatedHalvesBecomeOneLinearAndATiedHeadTheTablesCopy) {
  using Axis = ShardRule::Axis;
  // The rows of a slot may be in any order in the table.
  const WeightTable table = {{.name = "transformer.vocab_embedding.weight",
                              .shape = {11, 4},
                              .slot = slotOf(TableId::kTokens),
                              .stage = Stage::kFirst},
                             {.name = "layers.{layer}.mlp.fc.weight",
                              .shape = {6, 4},
                              .slot = slotOf(LinearId::kFc),
                              .shard = {.axis = Axis::kRows}},
                             {.name = "layers.{layer}.mlp.gate.weight",
                              .shape = {6, 4},
                              .slot = slotOf(LinearId::kFc, 6),
                              .shard = {.axis = Axis::kRows}},
                             {.name = "layers.{layer}.mlp.gate.bias",
                              .shape = {6},
                              .slot = slotOf(LinearId::kFc, 6).bias(),
                              .shard = {.axis = Axis::kRows}},
                             {.name = "layers.{layer}.mlp.fc.bias",
                              .shape = {6},
                              .slot = slotOf(LinearId::kFc).bias(),
                              .shard = {.axis = Axis::kRows}},
                             {.name = "layers.{layer}.norm.weight", .shape = {4}, .slot = slotOf(NormId::kMlpIn)}};
  ModelConfig config;
  config.dtype = DType::kBFloat16;
  config.vocab_size = 11;
  config.hidden_size = 4;
  config.num_hidden_layers = 1;
  config.mapping.tp_size = 2;
  config.tie_word_embeddings = true;
  const std::vector<RankTensor> tensors = rankTensors(table, config, 1);
  const EngineLayout layout = engineLayout(tensors, config, 1);

  std::vector<std::string> names;
  for (const EngineTensor& tensor : layout.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::ElementsAre("transformer.vocab_embedding", "layers.0.mlp.fc_gate",
                                          "layers.0.mlp.gate_fc.bias", "layers.0.norm", "lm_head"));
  EXPECT_EQ(layout.tensors[0].kind, EngineTensorKind::kTable);
  EXPECT_EQ(layout.tensors[1].rows, 6);
  EXPECT_EQ(layout.tensors[1].cols, 4);
  EXPECT_EQ(layout.tensors[2].kind, EngineTensorKind::kVector);
  EXPECT_EQ(layout.tensors[2].dtype, DType::kFloat32);
  EXPECT_EQ(layout.tensors[2].cols, 6);
  EXPECT_EQ(layout.tensors[4].rows, 6) << "this rank's share of 11, and padding";

  ASSERT_EQ(layout.places.size(), 5u);
  EXPECT_EQ(layout.places[1].slot, slotOf(LinearId::kFc));
  EXPECT_EQ(layout.places[1].layer, 0);
  EXPECT_EQ(layout.places[2].slot, slotOf(LinearId::kFc).bias());
  EXPECT_EQ(layout.places[3].slot, slotOf(NormId::kMlpIn));
  EXPECT_EQ(layout.places[4].slot, slotOf(LinearId::kHead));
  EXPECT_EQ(layout.places[4].layer, kOutsideLayers);

  ASSERT_EQ(layout.pieces.size(), 7u);
  EXPECT_EQ(layout.pieces[1].row_begin, 0);
  EXPECT_EQ(layout.pieces[2].row_begin, 3) << "behind the rank's rows of the other half";
  EXPECT_EQ(layout.pieces[3].row_begin, 3);
  EXPECT_EQ(layout.pieces[4].row_begin, 0);
  const EngineLayout::Piece& head = layout.pieces[6];
  EXPECT_EQ(head.source, &tensors[0]);
  EXPECT_EQ(head.first, 6);
  EXPECT_EQ(head.rows, 5);
  EXPECT_EQ(head.target, 4u);
}

TEST(EngineLayoutTest, LayersCountFromTheStagesFirst) {
  const WeightTable table = {
      {.name = "layers.{layer}.norm.weight", .shape = {4}, .slot = slotOf(NormId::kMlpIn)},
      {.name = "ln_f.weight", .shape = {4}, .slot = slotOf(NormId::kFinal), .stage = Stage::kLast}};
  ModelConfig config;
  config.num_hidden_layers = 4;
  config.mapping.pp_size = 2;
  const std::vector<RankTensor> tensors = rankTensors(table, config, 1);
  const EngineLayout layout = engineLayout(tensors, config, 1);
  ASSERT_EQ(layout.places.size(), 3u);
  EXPECT_EQ(layout.places[0].layer, 0);
  EXPECT_EQ(layout.places[1].layer, 1);
  EXPECT_EQ(layout.places[2].layer, kOutsideLayers);
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
