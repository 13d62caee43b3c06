#include "models/gpt_bigcode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/names.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// starcoder's config.json.
const ConfigCase kStarCoder("GPTBigCodeForCausalLM", R"({"activation_function": "gelu",
    "architectures": ["GPTBigCodeForCausalLM"], "attention_softmax_in_fp32": true, "attn_pdrop": 0.1,
    "bos_token_id": 0, "embd_pdrop": 0.1, "eos_token_id": 0, "inference_runner": 0, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "max_batch_size": null, "max_sequence_length": null, "model_type": "gpt_bigcode",
    "multi_query": true, "n_embd": 6144, "n_head": 48, "n_inner": 24576, "n_layer": 40, "n_positions": 8192,
    "pad_key_length": true, "pre_allocate_kv_cache": false, "resid_pdrop": 0.1,
    "scale_attention_softmax_in_fp32": true, "scale_attn_weights": true, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
    "summary_use_proj": true, "transformers_version": "4.28.1", "use_cache": true, "validate_runner_input": true,
    "vocab_size": 49152})");

TEST(GptBigCodeTest, ReadsAModelsFile) {
  const ModelConfig config = kStarCoder.read();
  EXPECT_EQ(kStarCoder.warnings(), "");
  EXPECT_EQ(config.num_key_value_heads, 1);
  EXPECT_EQ(config.head_size, 128);
  EXPECT_EQ(config.max_position_embeddings, 8192);
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  const ModelSpec spec = gptBigCodeArchitecture().modelSpec(written);
  EXPECT_TRUE(spec.embedding.positions);
  EXPECT_EQ(spec.layers.at(0).attention.heads.kv, 1);
  EXPECT_THAT(kStarCoder.refusal({{"scale_attn_weights", false}}), HasSubstr("'scale_attn_weights'"));
  EXPECT_THAT(kStarCoder.refusal({{"multi_query", "yes"}}), HasSubstr("'multi_query'"));
}

// The first rows of q, k and v of the second query head in the fused source, whose heads have 128 elements.
TEST(GptBigCodeTest, TheOrderOfTheSourceDependsOnTheKvHeads) {
  const auto starts = [](bool multi_query) {
    const WeightTable table = gptBigCodeArchitecture().weightTable(kStarCoder.read({{"multi_query", multi_query}}));
    std::vector<int64_t> rows;
    for (const WeightSource& source : findRow(table, slotOf(LinearId::kQkv))->sources) {
      source.in_source.forEachRun(128, 1, [&](int64_t row, int64_t) { rows.push_back(row); });
    }
    return rows;
  };
  EXPECT_EQ(starts(true), std::vector<int64_t>{128});
  EXPECT_EQ(starts(false), (std::vector<int64_t>{3 * 128, 4 * 128, 5 * 128}));
}

}  // namespace
}  // namespace chorus
