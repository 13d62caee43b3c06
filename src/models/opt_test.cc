#include "models/opt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// opt-125m's config.json.
const ConfigCase kOpt("OPTForCausalLM", R"({"_name_or_path": "facebook/opt-125m", "_remove_final_layer_norm": false,
    "activation_dropout": 0.0, "activation_function": "relu", "architectures": ["OPTForCausalLM"],
    "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": true, "dropout": 0.1, "eos_token_id": 2,
    "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
    "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>",
    "torch_dtype": "float16", "transformers_version": "4.21.0.dev0", "use_cache": true, "vocab_size": 50272,
    "word_embed_proj_dim": 768})");
// Differences of opt-350m's config.
const Json k350m = {{"do_layer_norm_before", false}, {"ffn_dim", 4096},         {"hidden_size", 1024},
                    {"num_attention_heads", 16},     {"num_hidden_layers", 24}, {"word_embed_proj_dim", 512}};

std::vector<std::string> namesOf(const WeightTable& table, SlotKind kind) {
  std::vector<std::string> names;
  for (const WeightRow& row : table) {
    if (row.slot.kind == kind && row.slot.isWeight()) names.push_back(row.name);
  }
  return names;
}

TEST(OptTest, ReadsAModelsFile) {
  const ModelConfig config = kOpt.read();
  EXPECT_EQ(kOpt.warnings(), "");
  EXPECT_EQ(config.embedding_size, 768);
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelSpec spec = optArchitecture().modelSpec(config);
  EXPECT_EQ(spec.norm.kind, NormKind::kLayerNorm);
  EXPECT_TRUE(spec.embedding.positions);
  EXPECT_TRUE(spec.head.norm);
  EXPECT_EQ(spec.layers.at(0).residual, ResidualForm::kPre);
  EXPECT_EQ(spec.layers.at(0).mlp.kind, MlpKind::kPlain);
  EXPECT_EQ(spec.layers.at(0).mlp.activation, Activation::kRelu);
}

TEST(OptTest, NormsOf350mAreAfterTheSums) {
  const ModelConfig config = kOpt.read(k350m);
  EXPECT_EQ(config.embedding_size, 512);
  const ModelSpec spec = optArchitecture().modelSpec(config);
  EXPECT_EQ(spec.embedding.width, 512);
  EXPECT_FALSE(spec.head.norm);
  EXPECT_EQ(spec.layers.at(0).residual, ResidualForm::kNormedSum);
  EXPECT_EQ(findRow(optArchitecture().weightTable(config), slotOf(NormId::kAttentionIn)), nullptr);
}

TEST(OptTest, TensorsAreThoseOfTheForm) {
  const std::string layer = "transformer.layers.{layer}.";
  const WeightTable before = optArchitecture().weightTable(kOpt.read());
  EXPECT_THAT(
      namesOf(before, SlotKind::kNorm),
      ElementsAre(layer + "input_layernorm.weight", layer + "post_layernorm.weight", "transformer.ln_f.weight"));
  const WeightTable after = optArchitecture().weightTable(kOpt.read(k350m));
  EXPECT_THAT(namesOf(after, SlotKind::kNorm),
              ElementsAre(layer + "input_layernorm.weight", layer + "post_layernorm.weight"));
  EXPECT_EQ(findRow(before, slotOf(LinearId::kProjectIn)), nullptr);
  EXPECT_EQ(findRow(after, slotOf(LinearId::kProjectIn))->shape, (std::vector<int64_t>{1024, 512}));
  EXPECT_EQ(findRow(after, slotOf(LinearId::kProjectOut))->shape, (std::vector<int64_t>{512, 1024}));
  EXPECT_EQ(findRow(after, slotOf(TableId::kTokens))->shape, (std::vector<int64_t>{50272, 512}));
}

TEST(OptTest, PositionsBeginAtTheThirdRowOfTheSource) {
  const WeightTable table = optArchitecture().weightTable(kOpt.read());
  const WeightRow& positions = *findRow(table, slotOf(TableId::kPositions));
  EXPECT_EQ(positions.shape, (std::vector<int64_t>{2048, 768}));
  EXPECT_EQ(sourceShape(positions, positions.sources[0]), (std::vector<int64_t>{2050, 768}));
  positions.sources[0].in_source.forEachRun(0, 2048, [](int64_t row, int64_t count) {
    EXPECT_EQ(row, 2);
    EXPECT_EQ(count, 2048);
  });
}

// The converter of TensorRT-LLM multiplies the embedding and the output head by the projections.
TEST(OptTest, CheckpointsOfTensorRtLlmHaveNoProjections) {
  const Json written = {{"architecture", "OPTForCausalLM"},
                        {"dtype", "float16"},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 16},
                        {"hidden_size", 1024},
                        {"vocab_size", 50272},
                        {"position_embedding_type", "learned_absolute"},
                        {"max_position_embeddings", 2048},
                        {"hidden_act", "relu"},
                        {"do_layer_norm_before", false}};
  const ModelConfig config = ModelConfig::fromJson(written, "c");
  EXPECT_EQ(errorOf([&] { architectureOf(config, "c"); }), "");
  const WeightTable table = optArchitecture().weightTable(config);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kProjectIn)), nullptr);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kHead))->shape, (std::vector<int64_t>{50272, 1024}));
  EXPECT_EQ(optArchitecture().modelSpec(config).layers.at(0).residual, ResidualForm::kNormedSum);
}

TEST(OptTest, AWrittenConfigHasTheSameForm) {
  for (const Json& changes : {Json::object(), k350m}) {
    const ModelConfig config = kOpt.read(changes);
    const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
    EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
    EXPECT_EQ(written.embedding_size, config.embedding_size);
    EXPECT_EQ(optArchitecture().modelSpec(written).layers.at(0).residual,
              optArchitecture().modelSpec(config).layers.at(0).residual);
  }
}

TEST(OptTest, RefusesWhatNoReleasedModelHas) {
  EXPECT_THAT(kOpt.refusal({{"enable_bias", false}}), HasSubstr("'enable_bias'"));
  EXPECT_THAT(kOpt.refusal({{"layer_norm_elementwise_affine", false}}), HasSubstr("'layer_norm_elementwise_affine'"));
  EXPECT_THAT(kOpt.refusal({{"_remove_final_layer_norm", true}}), HasSubstr("'_remove_final_layer_norm'"));
  EXPECT_THAT(kOpt.refusal({{"word_embed_proj_dim", 0}}), HasSubstr("word_embed_proj_dim"));
}

}  // namespace
}  // namespace chorus
