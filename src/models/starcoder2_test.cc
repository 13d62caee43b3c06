#include "models/starcoder2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/sliding_window.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::Each;
using testing::HasSubstr;

// starcoder2-3b's config.json.
const ConfigCase kStarCoder2("Starcoder2ForCausalLM", R"({"activation_function": "gelu",
    "architectures": ["Starcoder2ForCausalLM"], "attention_dropout": 0.1, "attention_softmax_in_fp32": true,
    "bos_token_id": 0, "embedding_dropout": 0.1, "eos_token_id": 0, "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 3072, "initializer_range": 0.018042, "intermediate_size": 12288, "layer_norm_epsilon": 1e-05,
    "max_position_embeddings": 16384, "mlp_type": "default", "model_type": "starcoder2", "norm_epsilon": 1e-05,
    "norm_type": "layer_norm", "num_attention_heads": 24, "num_hidden_layers": 30, "num_key_value_heads": 2,
    "residual_dropout": 0.1, "rope_theta": 999999.4420358813, "scale_attention_softmax_in_fp32": true,
    "scale_attn_weights": true, "sliding_window": 4096, "torch_dtype": "bfloat16",
    "transformers_version": "4.37.0.dev0", "use_bias": true, "use_cache": true, "vocab_size": 49152})");

TEST(Starcoder2Test, ReadsAModelsFile) {
  const ModelConfig config = kStarCoder2.read();
  EXPECT_EQ(kStarCoder2.warnings(), "");
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.attn_bias && config.mlp_bias);
  EXPECT_DOUBLE_EQ(config.rotary_base, 999999.4420358813);
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  EXPECT_THAT(layerWindows(written), Each(4096));
  const ModelSpec spec = starcoder2Architecture().modelSpec(written);
  EXPECT_EQ(spec.norm.kind, NormKind::kLayerNorm);
  EXPECT_EQ(spec.layers.at(0).mlp.kind, MlpKind::kPlain);
}

TEST(Starcoder2Test, BiasesAndTheWindowMayBeMissing) {
  const ModelConfig config = kStarCoder2.read({{"use_bias", false}, {"sliding_window", nullptr}});
  EXPECT_THAT(layerWindows(config), Each(0));
  const WeightTable table = starcoder2Architecture().weightTable(config);
  for (const WeightRow& row : table) EXPECT_FALSE(row.slot.kind == SlotKind::kLinear && row.slot.isBias()) << row.name;
  EXPECT_NE(findRow(table, slotOf(NormId::kFinal).bias()), nullptr);
  EXPECT_EQ(kStarCoder2.read({{"num_key_value_heads", nullptr}}).num_key_value_heads, 24);
  EXPECT_THAT(kStarCoder2.refusal({{"norm_type", "rms_norm"}}), HasSubstr("'norm_type'"));
  EXPECT_THAT(kStarCoder2.refusal({{"mlp_type", "gated"}}), HasSubstr("'mlp_type'"));
}

}  // namespace
}  // namespace chorus
