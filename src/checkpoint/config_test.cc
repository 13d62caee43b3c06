#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::HasSubstr;

Json minimal() {
  return Json::parse(R"({"architecture": "LlamaForCausalLM", "dtype": "float16", "vocab_size": 100,
    "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 6, "hidden_act": "silu"})");
}
std::string refusal(const Json& json) {
  return errorOf([&] { ModelConfig::fromJson(json, "c"); });
}
std::string refusal(const std::string& key, const Json& value) {
  Json json = minimal();
  json[key] = value;
  return refusal(json);
}

TEST(ModelConfigTest, FillsDefaultsOfTheSpecification) {
  const ModelConfig config = ModelConfig::fromJson(minimal(), "c");
  EXPECT_EQ(config.logits_dtype, DType::kFloat32);
  EXPECT_EQ(config.num_key_value_heads, 6);
  EXPECT_EQ(config.head_size, 4);
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.rotary_embedding_dim, 4);
  EXPECT_EQ(config.norm_epsilon, 1e-5);
  EXPECT_EQ(config.position_embedding_type, PositionEmbedding::kLearnedAbsolute);
  EXPECT_EQ(config.mapping.worldSize(), 1);
  EXPECT_FALSE(config.quantization.quant_algo.has_value());
}

TEST(ModelConfigTest, WritesEveryFieldAndReadsItBack) {
  Json json = minimal();
  json["do_layer_norm_before"] = true;
  json["position_embedding_type"] = "rope_gpt_neox";
  json["rotary_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  json["mapping"] = {{"world_size", 4}, {"tp_size", 2}, {"pp_size", 2}, {"gpus_per_node", 8}};
  json["quantization"] = {{"quant_algo", "W4A16_AWQ"}, {"group_size", 64}, {"exclude_modules", {"lm_head"}}};
  const ModelConfig config = ModelConfig::fromJson(json, "c");
  const Json written = config.toJson();
  for (const char* key :
       {"architecture", "dtype", "logits_dtype", "vocab_size", "max_position_embeddings", "hidden_size",
        "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act", "intermediate_size",
        "norm_epsilon", "position_embedding_type", "use_parallel_embedding", "embedding_sharding_dim", "mapping",
        "quantization", "do_layer_norm_before"}) {
    EXPECT_TRUE(written.contains(key)) << key;
  }
  EXPECT_EQ(written["position_embedding_type"], "rope_gpt_neox");
  EXPECT_EQ(written["mapping"]["world_size"], 4);
  EXPECT_EQ(written["quantization"]["group_size"], 64);
  EXPECT_EQ(ModelConfig::fromJson(written, "c").toJson(), written);
}

TEST(ModelConfigTest, ReadsTensorRtLlmsNamesOfRopeScalings) {
  Json json = minimal();
  json["position_embedding_type"] = "long_rope";
  json["max_position_embeddings"] = 64;
  json["original_max_position_embeddings"] = 16;
  json["longrope_scaling_short_factors"] = {1.0, 1.5};
  json["longrope_scaling_long_factors"] = {2.0, 3.0};
  const ModelConfig config = ModelConfig::fromJson(json, "c");
  EXPECT_EQ(config.position_embedding_type, PositionEmbedding::kRopeGptNeox);
  EXPECT_EQ(config.rotary_scaling.type, RopeScalingType::kLongRope);
  EXPECT_EQ(config.rotary_scaling.factor, 4.0);
  EXPECT_EQ(config.rotary_scaling.factors.ofLong(), (std::vector<float>{2, 3}));
  EXPECT_TRUE(config.extra.empty());
  EXPECT_EQ(ModelConfig::fromJson(config.toJson(), "c").toJson(), config.toJson());
  json.erase("longrope_scaling_long_factors");
  EXPECT_THAT(refusal(json),
              HasSubstr("longrope_scaling_short_factors and longrope_scaling_long_factors: 'long_factor'"));
  json["position_embedding_type"] = "yarn";
  EXPECT_EQ(refusal(json), "c: position_embedding_type 'yarn' needs rotary_scaling of type yarn");
  json["rotary_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(ModelConfig::fromJson(json, "c").rotary_scaling.original_max_position_embeddings, 16);
}

TEST(ModelConfigTest, RefusesWhatContradictsItself) {
  for (const char* key : {"architecture", "dtype", "vocab_size", "hidden_size", "num_hidden_layers",
                          "num_attention_heads", "hidden_act"}) {
    Json json = minimal();
    json.erase(key);
    EXPECT_THAT(refusal(json), HasSubstr(key));
  }
  EXPECT_THAT(refusal("hidden_size", -4), HasSubstr("hidden_size"));
  EXPECT_THAT(refusal("vocab_size", int64_t{1} << 40), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal("num_hidden_layers", 100000), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal("num_attention_heads", 5), HasSubstr("multiple"));
  EXPECT_THAT(refusal("num_key_value_heads", 4), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(refusal("dtype", "int8"), HasSubstr("int8"));
  EXPECT_THAT(refusal("position_embedding_type", "spiral"), HasSubstr("spiral"));
  EXPECT_THAT(refusal("rotary_scaling", {{"type", "dynamic"}, {"factor", 2}}), HasSubstr("dynamic"));
  EXPECT_THAT(refusal("mapping", {{"world_size", 3}, {"tp_size", 2}}),
              HasSubstr("world_size must equal to tp_size * pp_size * cp_size, but got"));
  EXPECT_THAT(refusal("mapping", {{"tp_size", 4}, {"world_size", 4}}), HasSubstr("tp_size"));
  EXPECT_THAT(refusal("mapping", {{"cp_size", 2}}), HasSubstr("cp_size"));
  EXPECT_THAT(refusal("quantization", {{"quant_algo", "W9"}}), HasSubstr("W9"));
  EXPECT_THAT(refusal("quantization", {{"quantum", 1}}), HasSubstr("unknown key 'quantum'"));
  EXPECT_THAT(refusal("rotary_scaling", {{"type", "linear"}, {"factor", 2}, {"beta_fast", 32}}),
              HasSubstr("beta_fast"));
  EXPECT_THAT(refusal("embedding_sharding_dim", 2), HasSubstr("embedding_sharding_dim"));
  EXPECT_THAT(refusal("q_scaling", -1), HasSubstr("q_scaling"));
  EXPECT_EQ(refusal("a_key_of_next_year", 1), "");
}

TEST(ModelConfigTest, ASizeOfZeroIsAnError) {
  for (const char* key : {"num_key_value_heads", "head_size", "intermediate_size", "rotary_embedding_dim"}) {
    EXPECT_THAT(refusal(key, 0), HasSubstr(std::string(key) + " is 0; it must be from 1 to"));
    EXPECT_EQ(refusal(key, nullptr), "");
  }
}

TEST(ModelConfigTest, RanksAndPatternsHaveLimits) {
  Json json = minimal();
  json.update({{"hidden_size", 256}, {"num_attention_heads", 256}, {"num_hidden_layers", 17}});
  json["mapping"] = {{"tp_size", 256}, {"pp_size", 16}};
  EXPECT_EQ(refusal(json), "");
  json["mapping"]["pp_size"] = 17;
  EXPECT_EQ(refusal(json), "c: mapping.world_size is 4352; it must be from 1 to 4096");
  const auto excluded = [](size_t count, size_t bytes) {
    return refusal("quantization", {{"exclude_modules", std::vector<std::string>(count, std::string(bytes, '*'))}});
  };
  EXPECT_EQ(excluded(1024, 256), "");
  EXPECT_EQ(excluded(1025, 1), "c: quantization: exclude_modules has 1025 patterns; the limit is 1024");
  EXPECT_EQ(excluded(1, 257), "c: quantization: exclude_modules has a pattern of 257 bytes; the limit is 256");
}

TEST(ModelConfigTest, FilesHaveALimit) {
  const std::filesystem::path path = testing::TempDir() + "config_limit_" + std::to_string(::getpid()) + ".json";
  writeFileAtomically(path, "{}");
  EXPECT_EQ(readModelConfigFile(path), Json::object());
  std::filesystem::resize_file(path, (size_t{4} << 20) + 1);
  EXPECT_THAT(errorOf([&] { readModelConfigFile(path); }), HasSubstr("4194304"));
  std::filesystem::remove(path);
}

TEST(StageLayersTest, FirstStagesHoldTheRemainder) {
  const Mapping mapping{.tp_size = 1, .pp_size = 3};
  std::vector<int32_t> counts;
  int32_t next = 0;
  for (int32_t stage = 0; stage < 3; ++stage) {
    const LayerRange range = stageLayers(8, mapping, stage);
    EXPECT_EQ(range.begin, next);
    next = range.end;
    counts.push_back(range.count());
  }
  EXPECT_EQ(counts, (std::vector<int32_t>{3, 3, 2}));
}

}  // namespace
}  // namespace chorus
