#include "models/olmo2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

// OLMo-2-1124-7B's config.json, with fewer KV heads.
const ConfigCase kOlmo2("Olmo2ForCausalLM", R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pad_token_id": 100277,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
    "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "use_cache": true, "vocab_size": 100352})");

TEST(Olmo2ConfigTest, ReadsAModelsFile) {
  const ModelConfig config = kOlmo2.read();
  EXPECT_EQ(kOlmo2.warnings(), "");
  EXPECT_EQ(config.rotary_base, 500000);
  EXPECT_TRUE(config.qk_layernorm);
  const LayerSpec layer = olmo2Architecture().modelSpec(config).layers.at(31);
  EXPECT_EQ(layer.residual, ResidualForm::kPost);
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::kWholeRow);
}

TEST(Olmo2TableTest, NormsAreAfterTheBlocksAndOfAllQueriesAndKeys) {
  const WeightTable table = olmo2Architecture().weightTable(kOlmo2.read());
  for (const NormId id : {NormId::kAttentionIn, NormId::kMlpIn}) EXPECT_EQ(findRow(table, slotOf(id)), nullptr);
  for (const NormId id : {NormId::kAttentionOut, NormId::kMlpOut}) EXPECT_NE(findRow(table, slotOf(id)), nullptr);
  EXPECT_EQ(findRow(table, slotOf(NormId::kQuery))->shape, std::vector<int64_t>{4096});
  EXPECT_EQ(findRow(table, slotOf(NormId::kKey))->shape, std::vector<int64_t>{1024});
  EXPECT_EQ(findRow(table, slotOf(NormId::kAttentionOut))->sources.at(0).name,
            "model.layers.{layer}.post_attention_layernorm.weight");
}

TEST(Olmo2SpecTest, ARankKnowsItsPlaceAmongTheHeads) {
  const ModelSpec whole = olmo2Architecture().modelSpec(kOlmo2.read());
  const Mapping mapping{.tp_size = 16};
  for (int32_t rank = 0; rank < 16; ++rank) {
    const AttentionSpec attention = rankSpec(whole, mapping, rank).layers.at(0).attention;
    EXPECT_EQ(attention.all_heads.queries, 32);
    EXPECT_EQ(attention.all_heads.kv, 8);
    EXPECT_EQ(attention.first_query, 2 * rank);
    EXPECT_EQ(attention.first_kv, rank / 2) << "two ranks have the same key head";
    EXPECT_EQ(attention.heads.kv, 1);
  }
}

}  // namespace
}  // namespace chorus
