#include "models/falcon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// falcon-7b's config.json.
const ConfigCase kFalcon("FalconForCausalLM", R"({"alibi": false, "apply_residual_connection_post_layernorm": false,
    "architectures": ["FalconForCausalLM"], "attention_dropout": 0.0, "auto_map": {"AutoConfig": "x"}, "bias": false,
    "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 4544, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": true, "new_decoder_architecture": false,
    "num_attention_heads": 71, "num_hidden_layers": 32, "parallel_attn": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.27.4", "use_cache": true, "vocab_size": 65024})");
// Differences of falcon-40b's config.
const Json kLarge = {{"hidden_size", 8192},
                     {"new_decoder_architecture", true},
                     {"num_attention_heads", 128},
                     {"num_kv_heads", 8},
                     {"num_hidden_layers", 60}};

Json large(const Json& changes) {
  Json json = kLarge;
  json.update(changes);
  return json;
}
ResidualForm formOf(const Json& changes) {
  return falconArchitecture().modelSpec(kFalcon.read(changes)).layers.at(0).residual;
}

TEST(FalconConfigTest, ReadsEveryForm) {
  EXPECT_EQ(kFalcon.warnings(), "");
  EXPECT_EQ(kFalcon.read().num_key_value_heads, 1);
  EXPECT_EQ(kFalcon.read({{"multi_query", false}}).num_key_value_heads, 71);
  EXPECT_EQ(kFalcon.read(kLarge).num_key_value_heads, 8);
  EXPECT_EQ(kFalcon.read().intermediate_size, 4 * 4544);
  EXPECT_EQ(formOf({}), ResidualForm::kParallelShared);
  EXPECT_EQ(formOf(kLarge), ResidualForm::kParallel);
  EXPECT_EQ(formOf(large({{"num_ln_in_parallel_attn", 1}})), ResidualForm::kParallelShared);
  EXPECT_EQ(formOf({{"parallel_attn", false}}), ResidualForm::kPre);
  for (const Json& changes : {Json::object(), kLarge, large({{"num_ln_in_parallel_attn", 1}})}) {
    const ModelConfig config = kFalcon.read(changes);
    const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
    EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
    EXPECT_EQ(falconArchitecture().modelSpec(written).layers.at(0).residual, formOf(changes));
  }
}

// falcon-rw-1b's config.json.
const ConfigCase kRw("FalconForCausalLM", R"({"alibi": true, "apply_residual_connection_post_layernorm": false,
    "architectures": ["FalconForCausalLM"], "attention_dropout": 0.0, "auto_map": {"AutoConfig": "x"}, "bias": true,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_dropout": 0.0, "hidden_size": 2048, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": false, "new_decoder_architecture": false,
    "num_attention_heads": 32, "num_hidden_layers": 24, "parallel_attn": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.27.4", "use_cache": true, "vocab_size": 50304})");

TEST(FalconConfigTest, ReadsAlibi) {
  const ModelConfig config = kRw.read();
  EXPECT_EQ(kRw.warnings(), "");
  EXPECT_EQ(config.num_key_value_heads, 32);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  for (const ModelConfig& read : {config, written}) {
    const LayerSpec layer = falconArchitecture().modelSpec(read).layers.at(0);
    EXPECT_EQ(layer.residual, ResidualForm::kPre);
    EXPECT_EQ(layer.attention.rope.kind, RopeKind::kNone);
    EXPECT_EQ(alibiSlopes(layer.attention.alibi).at(31), layer.attention.scale / 256);
  }
  EXPECT_EQ(kRw.read({{"rope_scaling", {{"type", "yarn"}}}}).rotary_scaling.type, RopeScalingType::kNone)
      << "without rotary positions, their keys have no effect";
  EXPECT_THAT(kRw.refusal({{"alibi", 3}}), HasSubstr("'alibi'"));
}

TEST(FalconConfigTest, RefusesMixedForms) {
  EXPECT_THAT(kFalcon.refusal(large({{"parallel_attn", false}})), HasSubstr("'parallel_attn' false"));
  EXPECT_THAT(kFalcon.refusal(large({{"num_ln_in_parallel_attn", 3}})), HasSubstr("must be 1 or 2"));
}

// Rows of the fused source for the second KV head of falcon-40b: 16 query heads of 64, a key and a value.
TEST(FalconTableTest, TheSourceIsOrderedByKvHead) {
  const WeightTable table = falconArchitecture().weightTable(kFalcon.read(kLarge));
  const WeightRow& qkv = *findRow(table, slotOf(LinearId::kQkv));
  std::vector<int64_t> starts;
  for (const WeightSource& source : qkv.sources) {
    const int64_t head = source.rows / 8;
    source.in_source.forEachRun(head, head, [&](int64_t row, int64_t) { starts.push_back(row); });
  }
  EXPECT_EQ(starts, (std::vector<int64_t>{18 * 64, 18 * 64 + 16 * 64, 18 * 64 + 17 * 64}));
  EXPECT_EQ(findRow(table, slotOf(NormId::kMlpIn))->name, "transformer.layers.{layer}.mlp_layernorm.weight");
}

TEST(FalconTableTest, NormsAreThoseOfTheForm) {
  const auto norms = [](const Json& changes) {
    std::vector<std::string> sources;
    for (const WeightRow& row : falconArchitecture().weightTable(kFalcon.read(changes))) {
      if (row.slot.kind == SlotKind::kNorm && row.slot.isWeight()) sources.push_back(row.sources[0].name);
    }
    return sources;
  };
  const std::string layer = "transformer.h.{layer}.";
  EXPECT_THAT(norms({}), testing::ElementsAre(layer + "input_layernorm.weight", "transformer.ln_f.weight"));
  EXPECT_THAT(norms(kLarge),
              testing::ElementsAre(layer + "ln_attn.weight", layer + "ln_mlp.weight", "transformer.ln_f.weight"));
  EXPECT_THAT(norms({{"parallel_attn", false}}),
              testing::ElementsAre(layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight",
                                   "transformer.ln_f.weight"));
}

}  // namespace
}  // namespace chorus
