#include "models/phi3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// phi-4's config.json.
const ConfigCase kPhi4("Phi3ForCausalLM", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100265, "hidden_act": "silu",
    "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17920, "max_position_embeddings": 16384,
    "model_type": "phi3", "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
    "original_max_position_embeddings": 16384, "pad_token_id": 100349, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 250000, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true, "vocab_size": 100352})");

TEST(Phi3ConfigTest, ReadsAModelsFile) {
  const ModelConfig config = kPhi4.read();
  EXPECT_EQ(kPhi4.warnings(), "");
  EXPECT_EQ(config.head_size, 128);
  EXPECT_EQ(config.rotary_embedding_dim, 128);
  EXPECT_EQ(kPhi4.read({{"partial_rotary_factor", 0.75}}).rotary_embedding_dim, 96);
}

TEST(Phi3ConfigTest, EveryLayerHasTheWindow) {
  const auto windows = [](const Json& changes) {
    std::set<int64_t> all;
    for (const LayerSpec& layer : phi3Architecture().modelSpec(kPhi4.read(changes)).layers) {
      all.insert(layer.attention.window);
    }
    return all;
  };
  EXPECT_THAT(windows({{"sliding_window", nullptr}}), ElementsAre(0));
  EXPECT_THAT(windows({{"sliding_window", 2047}}), ElementsAre(2047));
}

// Phi-4-mini-instruct's config.json, with heads of 16 elements instead of 128 and therefore fewer factors.
const ConfigCase kPhi4Mini("Phi3ForCausalLM", R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "bos_token_id": 199999,
    "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1, "hidden_act": "silu", "hidden_size": 384,
    "initializer_range": 0.02, "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3", "num_attention_heads": 24,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "original_max_position_embeddings": 4096,
    "pad_token_id": 199999, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"long_factor": [1, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897],
    "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.1], "type": "longrope"}, "rope_theta": 10000.0,
    "sliding_window": 262144, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0",
    "use_cache": true, "vocab_size": 200064})");

TEST(Phi3ConfigTest, LongRopeIsReadFromAModelsFile) {
  const ModelConfig config = kPhi4Mini.read();
  EXPECT_EQ(kPhi4Mini.warnings(), "");
  EXPECT_EQ(config.rotary_embedding_dim, 12);
  const RopeScaling& scaling = config.rotary_scaling;
  EXPECT_EQ(scaling.type, RopeScalingType::kLongRope);
  EXPECT_EQ(scaling.original_max_position_embeddings, 4096);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  EXPECT_EQ(scaling.factors.ofLong().back(), 1.74916897f);
  // A checkpoint keeps it, and the architecture accepts it.
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  EXPECT_EQ(written.rotary_scaling, scaling);
}

TEST(Phi3ConfigTest, OlderNamesOfLongRopeAreRead) {
  const Json factors = Json::array({1, 1, 1, 1, 1, 2});
  for (const char* type : {"su", "yarn", "longrope"}) {
    const Json scaling = {{"type", type}, {"short_factor", factors}, {"long_factor", factors}};
    EXPECT_EQ(kPhi4Mini.read({{"rope_scaling", scaling}}).rotary_scaling.type, RopeScalingType::kLongRope);
  }
}

TEST(Phi3ConfigTest, LongRopeNeedsAFactorForEveryPair) {
  EXPECT_THAT(kPhi4Mini.refusal({{"partial_rotary_factor", 1.0}}),
              HasSubstr("'short_factor' has 6 numbers, but a head has 8 rotated pairs"));
  EXPECT_THAT(kPhi4.refusal({{"rope_scaling", {{"type", "longrope"}}}}),
              HasSubstr("'short_factor' must be a list of numbers"));
}

TEST(Phi3TableTest, SourcesAndModulesAreFused) {
  const WeightTable table = phi3Architecture().weightTable(kPhi4.read());
  const WeightRow& qkv = *findRow(table, slotOf(LinearId::kQkv));
  EXPECT_EQ(qkv.sources.size(), 1u);
  EXPECT_EQ(qkv.sources[0].name, "model.layers.{layer}.self_attn.qkv_proj.weight");
  EXPECT_EQ(qkv.sources[0].rows, 5120 + 2 * 1280);
  const WeightRow& gate = *findRow(table, slotOf(LinearId::kFc, 17920));
  EXPECT_EQ(gate.sources[0].name, "model.layers.{layer}.mlp.gate_up_proj.weight");
  EXPECT_EQ(gate.sources[0].in_source.begin, 17920);
  EXPECT_EQ(gate.lora_targets.back().in_module.begin, 17920);
}

}  // namespace
}  // namespace chorus
