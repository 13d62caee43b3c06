#include "models/cohere.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// c4ai-command-r7b-12-2024's config.json with 8 of its 32 layers.
const ConfigCase kR7b("Cohere2ForCausalLM", R"({"architectures": ["Cohere2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 5, "cache_implementation": "hybrid", "eos_token_id": 255001,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "layer_norm_eps": 1e-05, "layer_switch": 4, "logit_scale": 0.25, "max_position_embeddings": 8192,
    "model_type": "cohere2", "num_attention_heads": 32, "num_hidden_layers": 8, "num_key_value_heads": 8,
    "order_of_interleaved_layers": "local_attn_first", "pad_token_id": 0, "position_embedding_type": "rope_gptj",
    "rope_scaling": null, "rope_theta": 50000, "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4,
    "torch_dtype": "bfloat16", "transformers_version": "4.48.0.dev0", "use_cache": true, "use_embedding_sharing": true,
    "use_gated_activation": true, "use_parallel_block": true, "use_parallel_embedding": true, "vocab_size": 256000})");

// c4ai-command-r-v01's config.json.
const ConfigCase kCommandR("CohereForCausalLM", R"({"architectures": ["CohereForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 5, "eos_token_id": 255001, "hidden_act": "silu", "hidden_size": 8192,
    "initializer_range": 0.02, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
    "max_position_embeddings": 8192, "model_max_length": 131072, "model_type": "cohere", "num_attention_heads": 64,
    "num_hidden_layers": 40, "num_key_value_heads": 64, "pad_token_id": 0, "pretraining_tp": 1,
    "rope_theta": 8000000.0, "torch_dtype": "float16", "transformers_version": "4.38.2", "use_cache": true,
    "vocab_size": 256000})");

ModelSpec specOf(const ConfigCase& model, const Json& changes = Json::object()) {
  const ModelConfig written = ModelConfig::fromJson(model.read(changes).toJson(), "c");
  return architectureOf(written, "c").modelSpec(written);
}
// The layers with a window, which are those with RoPE.
std::vector<size_t> slidingLayers(const Json& changes) {
  const ModelSpec spec = specOf(kR7b, changes);
  std::vector<size_t> found;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& attention = spec.layers[i].attention;
    EXPECT_EQ(attention.rope.kind, attention.window == 0 ? RopeKind::kNone : RopeKind::kGptj);
    if (attention.window != 0) found.push_back(i);
  }
  return found;
}

TEST(CohereTest, ReadsModelsFiles) {
  EXPECT_EQ(kR7b.warnings(), "");
  EXPECT_EQ(kCommandR.warnings(), "");
  for (const ConfigCase* model : {&kR7b, &kCommandR}) {
    const ModelConfig config = model->read();
    EXPECT_TRUE(config.tie_word_embeddings);
    EXPECT_EQ(config.norm_epsilon, 1e-5);
    const ModelSpec spec = specOf(*model);
    EXPECT_EQ(spec.norm.kind, NormKind::kLayerNorm);
    EXPECT_FALSE(spec.norm.bias);
    EXPECT_EQ(spec.layers.at(0).residual, ResidualForm::kParallelShared);
    EXPECT_EQ(spec.layers.at(0).attention.rope.kind, RopeKind::kGptj);
  }
  EXPECT_EQ(specOf(kR7b).head.scale, 0.25f);
  EXPECT_EQ(specOf(kCommandR).head.scale, 0.0625f);
  EXPECT_EQ(specOf(kCommandR).layers.back().attention.rope.base, 8e6);
}

TEST(CohereTest, OnlyLayersWithAWindowHaveRopeInCohere2) {
  EXPECT_THAT(slidingLayers(Json::object()), ElementsAre(0, 1, 2, 4, 5, 6));
  EXPECT_THAT(slidingLayers({{"sliding_window_pattern", 2}}), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(slidingLayers({{"sliding_window_pattern", nullptr}}), ElementsAre(0, 1, 2, 4, 5, 6));
  const Json types = {"full_attention", "sliding_attention", "full_attention", "full_attention",
                      "full_attention", "full_attention",    "full_attention", "sliding_attention"};
  EXPECT_THAT(slidingLayers({{"layer_types", types}}), ElementsAre(1, 7));
  EXPECT_THAT(slidingLayers({{"sliding_window_pattern", 1}}), IsEmpty());
}

TEST(CohereTest, ACheckpointWithoutAScaleHasTensorRtLlmsDefault) {
  ModelConfig config = kCommandR.read();
  config.extra.erase("output_multiplier_scale");
  EXPECT_EQ(cohereArchitecture().modelSpec(config).head.scale, 0.0625f);
}

TEST(CohereTest, RefusesWhatItDoesNotCompute) {
  EXPECT_THAT(kCommandR.refusal({{"use_qk_norm", true}}), HasSubstr("'use_qk_norm' is supported only at its default"));
  EXPECT_THAT(kR7b.refusal({{"use_parallel_block", false}}), HasSubstr("'use_parallel_block'"));
  EXPECT_THAT(kR7b.refusal({{"position_embedding_type", "rope_gpt_neox"}}), HasSubstr("'position_embedding_type'"));
  EXPECT_THAT(kR7b.refusal({{"sliding_window", nullptr}}), HasSubstr("'sliding_window' must be a number, not null"));
  EXPECT_THAT(kR7b.refusal({{"sliding_window_pattern", 0}}), HasSubstr("'sliding_window_pattern' must be at least 1"));
  EXPECT_THAT(kR7b.refusal({{"logit_scale", 0}}), HasSubstr("'logit_scale' must be from"));
  for (const auto& [field, value] : {std::pair("qk_layernorm", Json(true)),
                                     {"sliding_window", Json(9)},
                                     {"position_embedding_type", Json("rope_gpt_neox")},
                                     {"mlp_bias", Json(true)}}) {
    Json json = kCommandR.read().toJson();
    json[field] = value;
    EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }), HasSubstr(field));
  }
}

TEST(CohereTableTest, OneNormForEachLayer) {
  const WeightTable table = cohere2Architecture().weightTable(kR7b.read());
  EXPECT_NE(findRow(table, slotOf(NormId::kAttentionIn)), nullptr);
  EXPECT_EQ(findRow(table, slotOf(NormId::kAttentionIn).bias()), nullptr);
  EXPECT_EQ(findRow(table, slotOf(NormId::kMlpIn)), nullptr);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kHead)), nullptr) << "the head is the embedding";
}

}  // namespace
}  // namespace chorus
