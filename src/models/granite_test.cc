#include "models/granite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// granite-3.1-2b-instruct's config.json.
const ConfigCase kGranite("GraniteForCausalLM", R"({"architectures": ["GraniteForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.1, "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "logits_scaling": 8.0, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "granite",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 0,
    "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 5000000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.47.0.dev0", "use_cache": false,
    "vocab_size": 49155})");

TEST(GraniteTest, MultipliersAreFieldsOfTheStructure) {
  const ModelConfig config = kGranite.read();
  EXPECT_EQ(kGranite.warnings(), "");
  // A checkpoint keeps the multipliers.
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  const ModelSpec spec = graniteArchitecture().modelSpec(written);
  EXPECT_EQ(spec.embedding.scale, 12.0f);
  EXPECT_EQ(spec.layers.at(39).attention.scale, 0.015625f);
  EXPECT_EQ(written.extra.at("attention_multiplier"), 0.125) << "TensorRT-LLM's field: times sqrt(64)";
  EXPECT_EQ(spec.layers.at(39).residual_scale, 0.22f);
  EXPECT_EQ(spec.head.scale, 0.125f);
}

TEST(GraniteTest, ACheckpointWithoutMultipliersHasTheUsualScaleOfScores) {
  Json json = kGranite.read().toJson();
  json.erase("attention_multiplier");
  json["q_scaling"] = 2.0;
  const ModelSpec spec = graniteArchitecture().modelSpec(ModelConfig::fromJson(json, "c"));
  EXPECT_EQ(spec.layers.at(0).attention.scale, 1.0f / 16);
}

TEST(GraniteTest, AbsentMultipliersAreOne) {
  const Json none = {{"embedding_multiplier", nullptr},
                     {"attention_multiplier", nullptr},
                     {"residual_multiplier", nullptr},
                     {"logits_scaling", nullptr}};
  const ModelSpec spec = graniteArchitecture().modelSpec(kGranite.read(none));
  EXPECT_EQ(spec.embedding.scale, 1.0f);
  EXPECT_EQ(spec.layers.at(0).attention.scale, 1.0f);
  EXPECT_EQ(spec.head.scale, 1.0f);
}

TEST(GraniteTest, RefusesMultipliersThatAreNoFactors) {
  EXPECT_THAT(kGranite.refusal({{"logits_scaling", 0}}), HasSubstr("'logits_scaling' must be from"));
  EXPECT_THAT(kGranite.refusal({{"residual_multiplier", "x"}}), HasSubstr("residual_multiplier"));
  Json json = kGranite.read().toJson();
  json["embedding_multiplier"] = true;
  EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }),
              HasSubstr("embedding_multiplier true is not supported by GraniteForCausalLM"));
  for (const double value : {0.0, -1.0, 1e300}) {
    json["embedding_multiplier"] = value;
    EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }),
                HasSubstr("supported: a number from 1e-30 to 1e+30"));
  }
}

}  // namespace
}  // namespace chorus
