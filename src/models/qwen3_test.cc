#include "models/qwen3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// Qwen3-0.6B's config.json.
const ConfigCase kQwen3("Qwen3ForCausalLM", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960,
    "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");

TEST(Qwen3ConfigTest, ReadsAModelsFile) {
  const ModelConfig config = kQwen3.read();
  EXPECT_EQ(kQwen3.warnings(), "");
  EXPECT_EQ(config.head_size, 128);
  EXPECT_EQ(config.rotary_base, 1e6);
  EXPECT_TRUE(config.qk_layernorm);
  EXPECT_FALSE(config.attn_bias);
  EXPECT_EQ(kQwen3.read({{"head_dim", nullptr}}).head_size, 128);
}

TEST(Qwen3ConfigTest, LayersFromMaxWindowLayersOnHaveTheWindow) {
  const auto layers = [](const Json& changes) { return qwen3Architecture().modelSpec(kQwen3.read(changes)).layers; };
  EXPECT_EQ(layers({{"sliding_window", 16}}).back().attention.window, 0);
  const auto some = layers({{"sliding_window", 16}, {"use_sliding_window", true}, {"max_window_layers", 3}});
  EXPECT_EQ(some[2].attention.window, 0);
  EXPECT_EQ(some[3].attention.window, 16);
}

TEST(Qwen3TableTest, EveryLayerHasNormsOfQueriesAndKeys) {
  const ModelConfig config = kQwen3.read();
  const WeightTable table = qwen3Architecture().weightTable(config);
  for (const NormId id : {NormId::kQuery, NormId::kKey}) {
    const WeightRow* row = findRow(table, slotOf(id));
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->shape, std::vector<int64_t>{128});
  }
  EXPECT_EQ(findRow(table, slotOf(NormId::kKey))->name, "transformer.layers.{layer}.attention.k_layernorm.weight");
  EXPECT_EQ(findRow(table, slotOf(LinearId::kQkv).bias()), nullptr);
  EXPECT_EQ(qwen3Architecture().modelSpec(config).layers.at(27).attention.qk_norm, QkNorm::kPerHead);
}

TEST(Qwen3TableTest, AttentionBiasIsOfAllLinearsOfAttention) {
  const WeightTable table = qwen3Architecture().weightTable(kQwen3.read({{"attention_bias", true}}));
  EXPECT_NE(findRow(table, slotOf(LinearId::kQkv).bias()), nullptr);
  EXPECT_NE(findRow(table, slotOf(LinearId::kDense).bias()), nullptr);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc).bias()), nullptr);
}

}  // namespace
}  // namespace chorus
