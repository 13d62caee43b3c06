#include "models/smollm3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// SmolLM3-3B's config.json with 8 of its 36 layers.
const ConfigCase kSmol("SmolLM3ForCausalLM", R"({"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": null, "eos_token_id": 128012, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 11008, "layer_types": ["full_attention", "full_attention",
    "full_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention"],
    "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3",
    "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0], "num_attention_heads": 16,
    "num_hidden_layers": 8, "num_key_value_heads": 4, "pad_token_id": 128004, "pretraining_tp": 2,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null,
    "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0", "use_cache": false, "use_sliding_window": false,
    "vocab_size": 128256})");

// The layers without RoPE and those with a window, after a checkpoint was written and read.
std::vector<size_t> layersWhere(const Json& changes, bool (*isOne)(const AttentionSpec&)) {
  const ModelConfig written = ModelConfig::fromJson(kSmol.read(changes).toJson(), "c");
  architectureOf(written, "c");
  const ModelSpec spec = smollm3Architecture().modelSpec(written);
  std::vector<size_t> found;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (isOne(spec.layers[i].attention)) found.push_back(i);
  }
  return found;
}
std::vector<size_t> withoutRope(const Json& changes) {
  return layersWhere(changes, [](const AttentionSpec& spec) { return spec.rope.kind == RopeKind::kNone; });
}
std::vector<size_t> withWindow(const Json& changes) {
  return layersWhere(changes, [](const AttentionSpec& spec) { return spec.window == 20; });
}

TEST(SmolLm3Test, ReadsAModelsFile) {
  const ModelConfig config = kSmol.read();
  EXPECT_EQ(kSmol.warnings(), "");
  EXPECT_TRUE(config.tie_word_embeddings) << "the class's default";
  EXPECT_EQ(config.rotary_base, 5e6);
  EXPECT_FALSE(config.extra.contains("sliding_window"));
}

TEST(SmolLm3Test, TheListOrTheIntervalSaysWhichLayersHaveRope) {
  EXPECT_THAT(withoutRope(Json::object()), ElementsAre(3, 7));
  EXPECT_THAT(withoutRope({{"no_rope_layers", {0, 1, 1, true, 1, false, 1, 1, 0, 0}}}), ElementsAre(0, 5))
      << "entries of more layers are ignored";
  EXPECT_THAT(withoutRope({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 3}}), ElementsAre(2, 5));
  EXPECT_THAT(withoutRope({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", nullptr}}), ElementsAre(3, 7));
  EXPECT_THAT(withoutRope({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 9}}), ElementsAre());
}

TEST(SmolLm3Test, LayersWithoutRopeHaveTheWindowUnlessLayerTypesSayOtherwise) {
  const Json sliding = {{"use_sliding_window", true}, {"sliding_window", 20}};
  Json by_rope = sliding;
  by_rope["layer_types"] = nullptr;
  EXPECT_THAT(withWindow(by_rope), ElementsAre(3, 7));
  EXPECT_THAT(withWindow(sliding), ElementsAre()) << "its layer_types";
  by_rope["use_sliding_window"] = false;
  EXPECT_THAT(withWindow(by_rope), ElementsAre());
}

TEST(SmolLm3Test, RefusesMalformedLists) {
  for (const Json& list :
       {Json({1, 1, 1}), Json(4), Json({1, 1, 1, 2, 1, 1, 1, 1}), Json({1, 1, 1, "0", 1, 1, 1, 1})}) {
    EXPECT_THAT(kSmol.refusal({{"no_rope_layers", list}}), HasSubstr("'no_rope_layers' must be a list")) << list.dump();
    ModelConfig config = kSmol.read();
    config.extra["no_rope_layers"] = list;
    EXPECT_THAT(errorOf([&] { smollm3Architecture().modelSpec(config); }), HasSubstr("'no_rope_layers'"));
  }
  EXPECT_THAT(kSmol.refusal({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 0}}),
              HasSubstr("'no_rope_layer_interval' must be at least 1"));
}

TEST(SmolLm3Test, OthersRefuseItsField) {
  Json json = kSmol.read().toJson();
  json["architecture"] = "LlamaForCausalLM";
  EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }), HasSubstr("no_rope_layers"));
}

}  // namespace
}  // namespace chorus
