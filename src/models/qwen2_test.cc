#include "models/qwen2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <map>
#include <sstream>

#include "base/log.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

// Qwen2.5-0.5B's config.json.
Json qwen2() {
  return Json::parse(R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
    "vocab_size": 151936})");
}
// Keys and values that change the config above.
Json with(const Json& changes) {
  Json json = qwen2();
  json.update(changes);
  return json;
}
ModelConfig read(const Json& json) { return findArchitecture("Qwen2ForCausalLM").configFromHuggingFace(json, "c"); }
std::string refusal(const Json& changes) {
  return errorOf([&] { read(with(changes)); });
}
std::string logged(const Json& changes) {
  std::ostringstream out;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(out)));
  read(with(changes));
  spdlog::set_default_logger(before);
  return out.str();
}
std::vector<std::string> names(const ModelConfig& config) {
  std::vector<std::string> result;
  for (const WeightRow& row : qwen2Architecture().weightTable(config)) result.push_back(row.name);
  return result;
}

TEST(Qwen2ConfigTest, ReadsAModelsFile) {
  const ModelConfig config = read(qwen2());
  EXPECT_EQ(config.architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(config.head_size, 64);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.rotary_base, 1e6);
  EXPECT_EQ(config.rotary_embedding_dim, 64);
  EXPECT_EQ(config.position_embedding_type, PositionEmbedding::kRopeGptNeox);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attn_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_EQ(read(with({{"head_dim", 128}})).head_size, 128);
  EXPECT_EQ(architectureOf(config, "c").name, "Qwen2ForCausalLM");
}

TEST(Qwen2ConfigTest, KnowsEveryKeyOfModelsFiles) {
  EXPECT_EQ(logged(Json::object()), "");
  // A file that transformers 5 writes.
  EXPECT_EQ(logged({{"layer_types", std::vector<std::string>(24, "full_attention")},
                    {"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}},
                    {"dtype", "bfloat16"},
                    {"pad_token_id", nullptr},
                    {"sliding_window", nullptr}}),
            "");
  EXPECT_EQ(logged({{"rope_scaling", nullptr}, {"_name_or_path", "x"}, {"attention_dropout", 0.1}}), "");
  EXPECT_THAT(logged({{"a_key_of_next_year", 1}}), HasSubstr("a_key_of_next_year"));
}

// The layers that have a window, each with its size.
std::map<size_t, int64_t> windows(const Json& json) {
  std::map<size_t, int64_t> found;
  const ModelSpec spec = qwen2Architecture().modelSpec(read(json));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].attention.window != 0) found[i] = spec.layers[i].attention.window;
  }
  return found;
}

TEST(Qwen2ConfigTest, LayersAfterMaxWindowLayersHaveAWindowIfItIsUsed) {
  EXPECT_THAT(windows(with({{"sliding_window", 16}})), IsEmpty());
  EXPECT_THAT(windows(with({{"sliding_window", 16}, {"use_sliding_window", nullptr}})), IsEmpty());
  EXPECT_THAT(windows(with({{"sliding_window", 16}, {"use_sliding_window", true}})), IsEmpty());
  const Json null = {{"sliding_window", nullptr}, {"use_sliding_window", true}, {"max_window_layers", 0}};
  EXPECT_THAT(windows(with(null)), IsEmpty());
  const Json last = {{"sliding_window", 32767}, {"use_sliding_window", true}, {"max_window_layers", 22}};
  EXPECT_THAT(windows(with(last)), ElementsAre(Pair(22, 32767), Pair(23, 32767)));
}

TEST(Qwen2ConfigTest, AbsentKeysHaveTheValuesOfTransformers) {
  Json json = with({{"use_sliding_window", true}, {"max_window_layers", 23}});
  json.erase("sliding_window");
  EXPECT_THAT(windows(json), ElementsAre(Pair(23, 4096)));
  json = with({{"use_sliding_window", true}, {"sliding_window", 16}});
  json.erase("max_window_layers");
  EXPECT_THAT(windows(json), IsEmpty());
  json["num_hidden_layers"] = 29;
  EXPECT_THAT(windows(json), ElementsAre(Pair(28, 16)));
}

TEST(Qwen2ConfigTest, LayerTypesDecideWhichLayersHaveAWindow) {
  std::vector<std::string> types(24, "full_attention");
  Json changes = {{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 0}};
  changes["layer_types"] = types;
  EXPECT_THAT(windows(with(changes)), IsEmpty());
  types[20] = "sliding_attention";
  changes["layer_types"] = types;
  EXPECT_THAT(windows(with(changes)), ElementsAre(Pair(20, 16)));
}

TEST(Qwen2ConfigTest, RefusesPositionsThatItDoesNotCompute) {
  EXPECT_THAT(refusal({{"use_mrope", true}}), HasSubstr("'use_mrope'"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 0.5}}), HasSubstr("'partial_rotary_factor'"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}}), HasSubstr("'dynamic'"));
  EXPECT_EQ(
      refusal({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}}),
      "");
  EXPECT_EQ(refusal({{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}), "");
}

TEST(Qwen2TableTest, OnlyQKAndVHaveBiases) {
  const ModelConfig config = read(qwen2());
  const WeightTable table = qwen2Architecture().weightTable(config);
  const WeightRow* bias = findRow(table, slotOf(LinearId::kQkv).bias());
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->name, "transformer.layers.{layer}.attention.qkv.bias");
  ASSERT_EQ(bias->sources.size(), 3u);
  EXPECT_EQ(bias->sources[2].name, "model.layers.{layer}.self_attn.v_proj.bias");
  for (const LinearId linear : {LinearId::kDense, LinearId::kFc, LinearId::kProj, LinearId::kHead}) {
    EXPECT_EQ(findRow(table, slotOf(linear).bias()), nullptr);
  }
  EXPECT_THAT(names(config), Not(Contains("lm_head.weight")));
  EXPECT_THAT(names(read(with({{"tie_word_embeddings", false}}))), Contains("lm_head.weight"));
}

// Older versions of TensorRT-LLM do not write attn_bias.
TEST(Qwen2TableTest, ACheckpointWithoutAttnBiasHasTheBiases) {
  Json json = read(qwen2()).toJson();
  json.erase("attn_bias");
  const ModelConfig config = ModelConfig::fromJson(json, "c");
  EXPECT_THAT(names(config), Contains("transformer.layers.{layer}.attention.qkv.bias"));
  EXPECT_EQ(errorOf([&] { architectureOf(config, "c"); }), "");
  json["mlp_bias"] = true;
  EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }), HasSubstr("mlp_bias"));
}

}  // namespace
}  // namespace chorus
