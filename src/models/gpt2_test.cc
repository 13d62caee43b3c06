#include "models/gpt2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/names.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// gpt2's config.json.
const ConfigCase kGpt2("GPT2LMHeadModel", R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})");

TEST(Gpt2Test, ReadsAModelsFile) {
  const ModelConfig config = kGpt2.read();
  EXPECT_EQ(kGpt2.warnings(), "");
  EXPECT_EQ(config.intermediate_size, 4 * 768);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelSpec spec = gpt2Architecture().modelSpec(config);
  EXPECT_TRUE(spec.embedding.positions);
  EXPECT_EQ(spec.norm.kind, NormKind::kLayerNorm);
  EXPECT_EQ(spec.layers.at(0).mlp.kind, MlpKind::kPlain);
  EXPECT_EQ(spec.layers.at(0).mlp.activation, Activation::kGeluTanh);
}

TEST(Gpt2Test, RefusesOtherAttention) {
  EXPECT_THAT(kGpt2.refusal({{"scale_attn_weights", false}}), HasSubstr("'scale_attn_weights'"));
  EXPECT_THAT(kGpt2.refusal({{"scale_attn_by_inverse_layer_idx", true}}), HasSubstr("inverse_layer_idx"));
  EXPECT_THAT(kGpt2.refusal({{"add_cross_attention", true}}), HasSubstr("'add_cross_attention'"));
}

TEST(Gpt2Test, LinearsAreTransposedInTheSource) {
  const WeightTable table = gpt2Architecture().weightTable(kGpt2.read());
  const WeightRow& qkv = *findRow(table, slotOf(LinearId::kQkv));
  EXPECT_EQ(sourceShape(qkv, qkv.sources[0]), (std::vector<int64_t>{768, 3 * 768}));
  const WeightRow& bias = *findRow(table, slotOf(LinearId::kQkv).bias());
  EXPECT_EQ(bias.sources[0].name, "transformer.h.{layer}.attn.c_attn.bias");
  EXPECT_EQ(sourceShape(bias, bias.sources[0]), std::vector<int64_t>{3 * 768});
}

TEST(Gpt2Test, MasksInOldFilesAreIgnoredAndBiasesAreNot) {
  const auto ignored = gpt2Architecture().ignored_sources;
  EXPECT_TRUE(matchesAny(ignored, "transformer.h.0.attn.bias"));
  EXPECT_TRUE(matchesAny(ignored, "transformer.h.11.attn.masked_bias"));
  EXPECT_FALSE(matchesAny(ignored, "transformer.h.0.attn.c_attn.bias"));
}

}  // namespace
}  // namespace chorus
