#include "models/phi3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Phi3ConfigTest, RefusesLongPositions) {
  EXPECT_THAT(kPhi4.refusal({{"rope_scaling", {{"type", "longrope"}}}}), HasSubstr("'longrope' is not supported"));
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
