#include "models/gpt_neox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/names.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::HasSubstr;

// pythia-70m's config.json.
const ConfigCase kPythia("GPTNeoXForCausalLM", R"({"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0,
    "eos_token_id": 0, "hidden_act": "gelu", "hidden_size": 512, "initializer_range": 0.02, "intermediate_size": 2048,
    "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8,
    "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
    "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true, "use_parallel_residual": true,
    "vocab_size": 50304})");

LayerSpec layerOf(const ModelConfig& config) { return gptNeoxArchitecture().modelSpec(config).layers.at(0); }

TEST(GptNeoxTest, ReadsAModelsFile) {
  const ModelConfig config = kPythia.read();
  EXPECT_EQ(kPythia.warnings(), "");
  EXPECT_EQ(config.rotary_embedding_dim, 16);
  EXPECT_EQ(config.rotary_base, 10000);
  EXPECT_TRUE(config.attn_bias);
  const LayerSpec layer = layerOf(config);
  EXPECT_EQ(layer.residual, ResidualForm::kParallel);
  EXPECT_EQ(layer.attention.rope.kind, RopeKind::kNeox);
  EXPECT_EQ(layer.mlp.activation, Activation::kGelu);
}

TEST(GptNeoxTest, ReadsEverySpellingOfRotaryPositions) {
  const auto rope = [](const Json& changes) {
    const ModelConfig config = kPythia.read(changes);
    return std::pair(config.rotary_embedding_dim, config.rotary_base);
  };
  EXPECT_EQ(rope({{"rotary_pct", 1.0}, {"rotary_emb_base", 5000}}), std::pair(int64_t{64}, 5000.0));
  EXPECT_EQ(rope({{"rotary_pct", nullptr}, {"rotary_emb_base", nullptr}}), std::pair(int64_t{16}, 10000.0));
  const Json inside = {{"rope_type", "default"}, {"rope_theta", 700.0}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(rope({{"rope_parameters", inside}}), std::pair(int64_t{32}, 700.0));
  EXPECT_EQ(rope({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}), std::pair(int64_t{16}, 10000.0));
  EXPECT_THAT(kPythia.refusal({{"rotary_pct", 0.0}}), HasSubstr("'partial_rotary_factor' 0"));
  EXPECT_THAT(kPythia.refusal({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}), HasSubstr("'dynamic'"));
}

TEST(GptNeoxTest, BlocksMayFollowEachOther) {
  const ModelConfig config = kPythia.read({{"use_parallel_residual", false}, {"attention_bias", false}});
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  for (const ModelConfig& read : {config, written}) EXPECT_EQ(layerOf(read).residual, ResidualForm::kPre);
  const WeightTable table = gptNeoxArchitecture().weightTable(written);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kQkv).bias()), nullptr);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kDense).bias()), nullptr);
  EXPECT_NE(findRow(table, slotOf(LinearId::kFc).bias()), nullptr);
}

TEST(GptNeoxTest, TheHeadHasTwoNames) {
  const WeightTable table = gptNeoxArchitecture().weightTable(kPythia.read());
  const std::vector<WeightSource>& head = findRow(table, slotOf(LinearId::kHead))->sources;
  ASSERT_EQ(head.size(), 2u);
  EXPECT_EQ(head[0].name, "embed_out.weight");
  EXPECT_EQ(head[1].name, "lm_head.weight");
  EXPECT_EQ(head[1].spelling, 1);
}

// Rows of the fused source for the second of 8 heads of 64: a query, a key and a value.
TEST(GptNeoxTest, TheSourceIsOrderedByHead) {
  const WeightTable table = gptNeoxArchitecture().weightTable(kPythia.read());
  std::vector<int64_t> starts;
  for (const WeightSource& source : findRow(table, slotOf(LinearId::kQkv))->sources) {
    if (source.spelling == 0) source.in_source.forEachRun(64, 64, [&](int64_t row, int64_t) { starts.push_back(row); });
  }
  EXPECT_EQ(starts, (std::vector<int64_t>{3 * 64, 4 * 64, 5 * 64}));
}

}  // namespace
}  // namespace chorus
