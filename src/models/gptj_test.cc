#include "models/gptj.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/names.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// gpt-j-6b's config.json.
const ConfigCase kGptj("GPTJForCausalLM", R"({"activation_function": "gelu_new", "architectures": ["GPTJForCausalLM"],
    "attn_pdrop": 0.0, "bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "gradient_checkpointing": false,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gptj", "n_embd": 4096, "n_head": 16,
    "n_inner": null, "n_layer": 28, "n_positions": 2048, "resid_pdrop": 0.0, "rotary": true, "rotary_dim": 64,
    "scale_attn_weights": true, "summary_activation": null, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50, "temperature": 1.0}},
    "tie_word_embeddings": false, "tokenizer_class": "GPT2Tokenizer", "transformers_version": "4.18.0.dev0",
    "use_cache": true, "vocab_size": 50400})");

TEST(GptjTest, ReadsAModelsFile) {
  const ModelConfig config = kGptj.read();
  EXPECT_EQ(kGptj.warnings(), "");
  EXPECT_EQ(config.intermediate_size, 4 * 4096);
  EXPECT_EQ(config.rotary_embedding_dim, 64);
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  for (const ModelConfig& read : {config, written}) {
    const ModelSpec spec = gptjArchitecture().modelSpec(read);
    EXPECT_TRUE(spec.head.bias);
    const LayerSpec& layer = spec.layers.at(0);
    EXPECT_EQ(layer.residual, ResidualForm::kParallelShared);
    EXPECT_EQ(layer.attention.rope.kind, RopeKind::kGptj);
    EXPECT_EQ(layer.attention.rope.dims, 64);
    EXPECT_EQ(layer.mlp.kind, MlpKind::kPlain);
  }
}

TEST(GptjTest, RotatesPartOfAHead) {
  Json json = {{"rotary_dim", 32}};
  EXPECT_EQ(kGptj.read(json).rotary_embedding_dim, 32);
  EXPECT_THAT(kGptj.refusal({{"rotary_dim", nullptr}}), HasSubstr("'rotary_dim' must be a number"));
  EXPECT_THAT(kGptj.refusal({{"rotary_dim", 512}}), HasSubstr("rotary"));
  EXPECT_THAT(kGptj.refusal({{"rotary_dim", 33}}), HasSubstr("rotary"));
  EXPECT_THAT(kGptj.refusal({{"rotary", false}}), HasSubstr("'rotary'"));
}

// A tied output head has no weight of its own, but a bias.
TEST(GptjTest, TheHeadHasABias) {
  for (const bool tied : {false, true}) {
    const WeightTable table = gptjArchitecture().weightTable(kGptj.read({{"tie_word_embeddings", tied}}));
    EXPECT_EQ(findRow(table, slotOf(LinearId::kHead)) == nullptr, tied);
    const WeightRow* bias = findRow(table, slotOf(LinearId::kHead).bias());
    ASSERT_NE(bias, nullptr);
    EXPECT_EQ(bias->name, "lm_head.bias");
    EXPECT_EQ(bias->shape, std::vector<int64_t>{50400});
    EXPECT_EQ(bias->stage, Stage::kLast);
    EXPECT_TRUE(bias->shard.pad_rows);
    ASSERT_EQ(bias->sources.size(), 1u);
    EXPECT_EQ(bias->sources[0].name, "lm_head.bias");
  }
}

}  // namespace
}  // namespace chorus
