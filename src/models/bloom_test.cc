#include "models/bloom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// bloom-560m's config.json.
const ConfigCase kBloom("BloomForCausalLM", R"({"apply_residual_connection_post_layernorm": false,
    "architectures": ["BloomForCausalLM"], "attention_dropout": 0.0, "attention_softmax_in_fp32": true,
    "bias_dropout_fusion": true, "bos_token_id": 1, "eos_token_id": 2, "hidden_dropout": 0.0,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "masked_softmax_fusion": true, "model_type": "bloom",
    "n_embed": 1024, "n_inner": null, "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100,
    "pad_token_id": 3, "pretraining_tp": 1, "seq_length": 4096, "skip_bias_add": true, "skip_bias_add_qkv": false,
    "slow_but_exact": false, "transformers_version": "4.20.0", "unk_token_id": 0, "use_cache": true,
    "vocab_size": 250880})");
// Differences of bloom-7b1's config.
const Json k7b1 = {{"n_embed", nullptr}, {"hidden_size", 4096},  {"n_layer", 30}, {"num_attention_heads", nullptr},
                   {"n_head", 32},       {"seq_length", nullptr}};

TEST(BloomTest, ReadsAModelsFile) {
  const ModelConfig config = kBloom.read();
  EXPECT_EQ(kBloom.warnings(), "");
  EXPECT_EQ(config.hidden_size, 1024);
  EXPECT_EQ(config.intermediate_size, 4 * 1024);
  EXPECT_EQ(config.num_hidden_layers, 24);
  EXPECT_EQ(config.num_attention_heads, 16);
  EXPECT_EQ(config.max_position_embeddings, 4096);
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelSpec spec = bloomArchitecture().modelSpec(config);
  EXPECT_EQ(spec.norm.kind, NormKind::kLayerNorm);
  EXPECT_TRUE(spec.embedding.norm);
  EXPECT_FALSE(spec.embedding.positions);
  EXPECT_EQ(spec.layers.at(0).residual, ResidualForm::kPre);
  EXPECT_EQ(spec.layers.at(0).mlp.kind, MlpKind::kPlain);
  EXPECT_EQ(spec.layers.at(0).mlp.activation, Activation::kGeluTanh);
  EXPECT_EQ(spec.layers.at(0).attention.rope.kind, RopeKind::kNone);
  EXPECT_EQ(alibiSlopes(spec.layers.at(0).attention.alibi), alibiSlopes(16));
}

TEST(BloomTest, SizesHaveTwoSpellings) {
  const ModelConfig config = kBloom.read(k7b1);
  EXPECT_EQ(kBloom.warnings(k7b1), "");
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.num_hidden_layers, 30);
  EXPECT_EQ(config.num_attention_heads, 32);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(kBloom.read({{"n_layer", nullptr}, {"num_hidden_layers", 7}}).num_hidden_layers, 7);
}

TEST(BloomTest, TheSourceHasQueryKeyAndValueOfEachHead) {
  const WeightTable table = bloomArchitecture().weightTable(kBloom.read());
  const WeightRow& qkv = *findRow(table, slotOf(LinearId::kQkv));
  const int64_t d = 64;
  std::vector<int64_t> starts;
  for (const WeightSource& source : qkv.sources) {
    EXPECT_EQ(source.name, "transformer.h.{layer}.self_attention.query_key_value.weight");
    source.in_source.forEachRun(5 * d, d, [&](int64_t row, int64_t count) {
      starts.push_back(row);
      EXPECT_EQ(count, d);
    });
  }
  EXPECT_EQ(starts, (std::vector<int64_t>{15 * d, 16 * d, 17 * d}));
  EXPECT_EQ(qkv.lora_targets.at(2).in_module.begin, 2 * d);
}

TEST(BloomTest, TheNormAfterTheEmbeddingIsOnTheFirstStage) {
  const WeightTable table = bloomArchitecture().weightTable(kBloom.read());
  const WeightRow& norm = *findRow(table, slotOf(NormId::kEmbedding));
  EXPECT_EQ(norm.name, "transformer.ln_embed.weight");
  EXPECT_EQ(norm.sources.at(0).name, "transformer.word_embeddings_layernorm.weight");
  EXPECT_EQ(norm.stage, Stage::kFirst);
  EXPECT_EQ(findRow(table, slotOf(NormId::kEmbedding).bias())->stage, Stage::kFirst);
}

// The config of a checkpoint that TensorRT-LLM's converter writes has no field for biases and no
// max_position_embeddings.
TEST(BloomTest, ReadsCheckpointsOfTensorRtLlm) {
  const Json written = {{"architecture", "BloomForCausalLM"}, {"dtype", "float16"},   {"num_hidden_layers", 24},
                        {"num_attention_heads", 16},          {"hidden_size", 1024},  {"vocab_size", 250880},
                        {"position_embedding_type", "alibi"}, {"hidden_act", "gelu"}, {"share_embedding_table", true}};
  const ModelConfig config = ModelConfig::fromJson(written, "c");
  EXPECT_EQ(errorOf([&] { architectureOf(config, "c"); }), "");
  EXPECT_NE(findRow(bloomArchitecture().weightTable(config), slotOf(LinearId::kFc).bias()), nullptr);
  EXPECT_EQ(bloomArchitecture().modelSpec(config).layers.at(0).mlp.activation, Activation::kGeluTanh);
}

TEST(BloomTest, RefusesOtherResidualsAndPositions) {
  EXPECT_THAT(kBloom.refusal({{"apply_residual_connection_post_layernorm", true}}),
              HasSubstr("'apply_residual_connection_post_layernorm'"));
  EXPECT_THAT(kBloom.refusal({{"n_layer", nullptr}}), HasSubstr("'num_hidden_layers'"));
  EXPECT_THAT(kBloom.refusal({{"n_head", 0}}), HasSubstr("num_attention_heads is 0"));
  ModelConfig config = kBloom.read();
  config.position_embedding_type = PositionEmbedding::kAlibiWithScale;
  EXPECT_THAT(errorOf([&] { architectureOf(config, "c"); }), HasSubstr("alibi_with_scale"));
}

}  // namespace
}  // namespace chorus
