#include "models/ministral3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// The text model of Ministral-3-8B-Instruct-2512's config.json.
const ConfigCase kMinistral("Ministral3ForCausalLM", R"({"architectures": ["Ministral3ForCausalLM"],
    "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 262144, "model_type": "ministral3",
    "num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0,
    "rope_type": "yarn", "type": "yarn"}, "sliding_window": null, "tie_word_embeddings": false, "use_cache": true,
    "vocab_size": 131072})");

Json parameters(const char* key, const Json& value) {
  Json rope = {{"rope_type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 16384}};
  rope[key] = value;
  return {{"rope_parameters", rope}};
}

TEST(Ministral3Test, ReadsAModelsFile) {
  const ModelConfig config = kMinistral.read();
  EXPECT_EQ(kMinistral.warnings(), "");
  EXPECT_EQ(config.rotary_scaling.type, RopeScalingType::kYarn);
  EXPECT_EQ(config.rotary_scaling.attention_factor, 1.0) << "mscale is mscale_all_dim";
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  const ModelSpec spec = ministral3Architecture().modelSpec(written);
  EXPECT_EQ(spec.layers.back().attention.query_scaling, (QueryScaling{.beta = 0.1, .length = 16384}));
  EXPECT_EQ(spec.layers.back().attention.window, 0);
}

TEST(Ministral3Test, WithoutRopeParametersItHasTheClasssValues) {
  const ModelConfig config = kMinistral.read({{"rope_parameters", nullptr}});
  EXPECT_EQ(config.toJson(), kMinistral.read().toJson());
}

TEST(Ministral3Test, WithoutABetaQueriesDoNotGrow) {
  for (const Json& beta : {Json(nullptr), Json(0), Json(0.0)}) {
    const ModelSpec spec =
        ministral3Architecture().modelSpec(kMinistral.read(parameters("llama_4_scaling_beta", beta)));
    EXPECT_EQ(spec.layers.at(0).attention.query_scaling, QueryScaling());
  }
}

TEST(Ministral3Test, RefusesABetaWithoutALength) {
  EXPECT_THAT(kMinistral.refusal({{"rope_parameters", {{"rope_type", "default"}, {"llama_4_scaling_beta", 0.1}}}}),
              HasSubstr("'llama_4_scaling_beta' is supported only with a RoPE scaling that has an original length"));
  EXPECT_THAT(kMinistral.refusal(parameters("llama_4_scaling_beta", -0.1)), HasSubstr("'llama_4_scaling_beta'"));
  EXPECT_THAT(kMinistral.refusal(parameters("llama_4_scaling_beta", "x")), HasSubstr("llama_4_scaling_beta"));
  Json json = kMinistral.read().toJson();
  json["architecture"] = "MistralForCausalLM";
  EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }),
              HasSubstr("llama_4_scaling_beta 0.1 is not supported by MistralForCausalLM"));
}

}  // namespace
}  // namespace chorus
