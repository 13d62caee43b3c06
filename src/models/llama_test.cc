#include "models/llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json llama() {
  return Json::parse(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 20, "intermediate_size": 28,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 50,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu", "torch_dtype": "float16"})");
}
Json with(Json json, const std::string& key, const Json& value) {
  json[key] = value;
  return json;
}
ModelConfig read(const Json& json) { return llamaArchitecture().configFromHuggingFace(json, "c"); }
std::string refusal(const std::string& key, const Json& value) {
  return errorOf([&] { read(with(llama(), key, value)); });
}
std::vector<std::string> names(const ModelConfig& config) {
  std::vector<std::string> result;
  for (const WeightRow& row : llamaArchitecture().weightTable(config)) result.push_back(row.name);
  return result;
}

TEST(LlamaConfigTest, ReadsAnExplicitHeadSize) {
  const ModelConfig config = read(llama());
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.head_size, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.rotary_embedding_dim, 4);
  EXPECT_EQ(config.norm_epsilon, 1e-6);
  EXPECT_EQ(config.rotary_base, 10000.0);
  EXPECT_EQ(config.position_embedding_type, PositionEmbedding::kRopeGptNeox);
}

TEST(LlamaConfigTest, NullHeadsMeanOnePerQueryHead) {
  Json json = with(llama(), "num_key_value_heads", nullptr);
  EXPECT_EQ(read(json).num_key_value_heads, 6);
}

TEST(LlamaConfigTest, NumKeyValueHeadsOfZeroIsAnError) {
  EXPECT_THAT(refusal("num_key_value_heads", 0), HasSubstr("num_key_value_heads is 0"));
  EXPECT_THAT(refusal("head_dim", 0), HasSubstr("head_dim is 0"));
}

TEST(LlamaConfigTest, ReadsRotaryPositionsOfBothTransformersSpellings) {
  EXPECT_EQ(read(with(llama(), "rope_theta", 5e5)).rotary_base, 5e5);
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const ModelConfig old_spelling = read(with(with(llama(), "rope_theta", 5e5), "rope_scaling", llama3));
  const ModelConfig new_spelling = read(with(llama(), "rope_parameters", with(llama3, "rope_theta", 5e5)));
  EXPECT_EQ(old_spelling.toJson(), new_spelling.toJson());
  EXPECT_EQ(new_spelling.rotary_scaling.type, RopeScalingType::kLlama3);
  EXPECT_EQ(new_spelling.rotary_scaling.original_max_position_embeddings, 8192);
  EXPECT_EQ(read(with(llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}})).rotary_scaling.factor, 2.0);
  EXPECT_EQ(read(with(llama(), "rope_parameters", {{"rope_theta", 1e4}, {"rope_type", "default"}})).rotary_scaling.type,
            RopeScalingType::kNone);
  EXPECT_EQ(read(with(llama(), "rope_scaling", {{"type", "yarn"}, {"factor", 2.0}})).rotary_scaling.type,
            RopeScalingType::kYarn);
  EXPECT_THAT(refusal("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}), HasSubstr("'dynamic'"));
  EXPECT_THAT(refusal("rope_scaling", {{"type", "default"}, {"llama_4_scaling_beta", 0.1}}),
              HasSubstr("llama_4_scaling_beta"));
  EXPECT_THAT(refusal("rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"beta_fast", 3}}), HasSubstr("beta_fast"));
  EXPECT_THAT(refusal("rope_scaling", {{"type", "linear"}, {"factor", -1.0}}), HasSubstr("factor"));
}

TEST(LlamaConfigTest, RefusesKeysThatAreSupportedOnlyAtTheirDefault) {
  EXPECT_THAT(refusal("pretraining_tp", 2), HasSubstr("'pretraining_tp'"));
  EXPECT_THAT(refusal("quantization_config", {{"bits", 4}}), HasSubstr("'quantization_config'"));
  EXPECT_THAT(refusal("is_encoder_decoder", true), HasSubstr("'is_encoder_decoder'"));
  EXPECT_THAT(refusal("partial_rotary_factor", 0.5), HasSubstr("'partial_rotary_factor'"));
  EXPECT_EQ(refusal("pretraining_tp", 1), "");
  EXPECT_EQ(refusal("quantization_config", nullptr), "");
  EXPECT_EQ(refusal("a_key_of_next_year", 1), "");
}

TEST(MistralConfigTest, EveryLayerHasTheWindow) {
  const auto windows = [](const Json& json) {
    std::set<int64_t> all;
    const ModelConfig config = mistralArchitecture().configFromHuggingFace(json, "c");
    for (const LayerSpec& layer : mistralArchitecture().modelSpec(config).layers) all.insert(layer.attention.window);
    return all;
  };
  EXPECT_THAT(windows(with(llama(), "sliding_window", nullptr)), ElementsAre(0));
  EXPECT_THAT(windows(with(llama(), "sliding_window", 32)), ElementsAre(32));
  EXPECT_THAT(windows(llama()), ElementsAre(4096)) << "transformers' value for a file without the key";
}

TEST(LlamaTableTest, BiasesAreOnEveryAttentionLinear) {
  EXPECT_THAT(names(read(llama())), Not(Contains(HasSubstr("bias"))));
  const auto attention = names(read(with(llama(), "attention_bias", true)));
  EXPECT_THAT(attention, Contains("transformer.layers.{layer}.attention.qkv.bias"));
  EXPECT_THAT(attention, Contains("transformer.layers.{layer}.attention.dense.bias"));
  EXPECT_THAT(attention, Not(Contains(HasSubstr("mlp.fc.bias"))));
  const WeightTable table = llamaArchitecture().weightTable(read(with(llama(), "mlp_bias", true)));
  EXPECT_EQ(findRow(table, slotOf(LinearId::kProj).bias())->shard.axis, ShardRule::Axis::kNone);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc).bias())->shard.axis, ShardRule::Axis::kRows);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc, 28).bias())->name, "transformer.layers.{layer}.mlp.gate.bias");
}

TEST(LlamaTableTest, TiedHeadsAreLeftOutWhereEveryRankHasTheEmbedding) {
  ModelConfig config = read(with(llama(), "tie_word_embeddings", true));
  EXPECT_THAT(names(config), Not(Contains("lm_head.weight")));
  config.mapping.pp_size = 2;
  EXPECT_THAT(names(config), Contains("lm_head.weight"));
  const WeightTable table = llamaArchitecture().weightTable(config);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kHead))->sources[0].name, "model.embed_tokens.weight");
}

TEST(LlamaTableTest, ModulesOfAdaptersCoverTheirRows) {
  const WeightTable table = llamaArchitecture().weightTable(read(llama()));
  const WeightRow& qkv = *findRow(table, slotOf(LinearId::kQkv));
  EXPECT_THAT(qkv.shape, ElementsAre(40, 20));
  ASSERT_EQ(qkv.lora_targets.size(), 4u);
  EXPECT_EQ(qkv.lora_targets[2].module_name, "self_attn.k_proj");
  EXPECT_EQ(qkv.lora_targets[2].row_begin, 24);
  EXPECT_EQ(qkv.lora_targets[2].rows, 8);
  const LoraTarget& activated = findRow(table, slotOf(LinearId::kFc))->lora_targets[0];
  EXPECT_EQ(activated.module_id, 5);
  EXPECT_EQ(activated.module_name, "mlp.gate_proj");
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc, 28))->lora_targets[0].module_id, 7);
}

}  // namespace
}  // namespace chorus
