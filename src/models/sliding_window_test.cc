#include "models/sliding_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig fourLayers() {
  ModelConfig config;
  config.num_hidden_layers = 4;
  return config;
}
std::vector<int64_t> read(const Json& json, const WindowDefaults& defaults = {}) {
  ModelConfig config = fourLayers();
  readSlidingWindow(json, "c", defaults, config);
  return layerWindows(config);
}
std::vector<int64_t> ofCheckpoint(const Json& fields) {
  ModelConfig config = fourLayers();
  config.extra = fields;
  return layerWindows(config);
}
std::string refusal(const Json& json) {
  return errorOf([&] { read(json); });
}

const Json kTypes = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};

TEST(SlidingWindowTest, SourceConfigs) {
  EXPECT_THAT(read(Json::object()), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(read(Json::object(), {.window = 9}), ElementsAre(9, 9, 9, 9));
  EXPECT_THAT(read({{"sliding_window", nullptr}}, {.window = 9}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(read({{"sliding_window", 5}}), ElementsAre(5, 5, 5, 5));
  const WindowDefaults odd = {.slides = [](int32_t layer) { return layer % 2 == 1; }};
  EXPECT_THAT(read({{"sliding_window", 5}}, odd), ElementsAre(0, 5, 0, 5));
  EXPECT_THAT(read({{"sliding_window", 5}, {"layer_types", kTypes}}, odd), ElementsAre(5, 0, 0, 5));
  EXPECT_THAT(read({{"layer_types", kTypes}}, {.window = 9}), ElementsAre(9, 0, 0, 9));
}

// transformers ignores layer_types in the configs of these models, and so their masks do.
TEST(SlidingWindowTest, LayerTypesActOnlyWhereTransformersReadsThem) {
  Json config = {{"hidden_size", 8},         {"intermediate_size", 8},       {"num_hidden_layers", 4},
                 {"num_attention_heads", 2}, {"num_key_value_heads", 1},     {"head_dim", 4},
                 {"vocab_size", 5},          {"max_position_embeddings", 64}};
  config.update(Json{{"sliding_window", 5}, {"layer_types", kTypes}, {"use_sliding_window", true}});
  config.update(Json{{"num_experts", 2}, {"num_experts_per_tok", 1}, {"moe_intermediate_size", 8}});
  const auto windows = [&](const char* architecture, const Json& json) {
    return layerWindows(findArchitecture(architecture).configFromHuggingFace(json, "c"));
  };
  for (const char* architecture : {"MistralForCausalLM", "MixtralForCausalLM", "Ministral3ForCausalLM",
                                   "Phi3ForCausalLM", "Starcoder2ForCausalLM", "Qwen3MoeForCausalLM"}) {
    SCOPED_TRACE(architecture);
    EXPECT_THAT(windows(architecture, config), ElementsAre(5, 5, 5, 5));
    Json other = config;
    other["layer_types"] = "not a list";
    other["sliding_window"] = nullptr;
    EXPECT_THAT(windows(architecture, other), ElementsAre(0, 0, 0, 0));
  }
  for (const char* architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM", "Cohere2ForCausalLM"}) {
    EXPECT_THAT(windows(architecture, config), ElementsAre(5, 0, 0, 5)) << architecture;
  }
}

TEST(SlidingWindowTest, Checkpoints) {
  EXPECT_THAT(ofCheckpoint(Json::object()), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(ofCheckpoint({{"sliding_window", 5}}), ElementsAre(5, 5, 5, 5));
  for (const char* pattern : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    EXPECT_THAT(ofCheckpoint({{"sliding_window", 5}, {pattern, 2}}), ElementsAre(5, 0, 5, 0));
  }
  EXPECT_THAT(ofCheckpoint({{"sliding_window", 5}, {"layer_types", kTypes}}), ElementsAre(5, 0, 0, 5));
}

TEST(SlidingWindowTest, RefusalsNameTheKey) {
  for (const Json& window : {Json(0), Json(-1), Json(int64_t{1} << 31), Json("wide")}) {
    EXPECT_THAT(refusal({{"sliding_window", window}}), HasSubstr("'sliding_window'"));
    EXPECT_THAT(errorOf([&] { ofCheckpoint({{"sliding_window", window}}); }), HasSubstr("'sliding_window'"));
  }
  EXPECT_THAT(refusal({{"layer_types", 3}}), HasSubstr("'layer_types' must be a list"));
  EXPECT_THAT(refusal({{"layer_types", {"full_attention"}}}), HasSubstr("an entry for each of the 4 layers"));
  EXPECT_THAT(refusal({{"layer_types", {"full_attention", "full_attention", 3, "full_attention"}}}),
              HasSubstr("'layer_types' has 3"));
  EXPECT_THAT(refusal({{"layer_types", kTypes}}), HasSubstr("there is no 'sliding_window'"));
  const auto refusalOfCheckpoint = [](const Json& fields) { return errorOf([&] { ofCheckpoint(fields); }); };
  EXPECT_THAT(refusalOfCheckpoint({{"layer_types", kTypes}}), HasSubstr("'layer_types' gives layers a window, but"));
  EXPECT_THAT(refusalOfCheckpoint({{"sliding_window_pattern", 2}}), HasSubstr("there is no 'sliding_window'"));
  EXPECT_THAT(refusalOfCheckpoint({{"sliding_window", nullptr}, {"layer_types", 3}}), HasSubstr("must be a list"));
}

}  // namespace
}  // namespace chorus
