#include "models/granite_moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lora/adapter_builder.h"
#include "models/experts.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kConfig = R"({"architectures": ["GraniteMoeForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.1, "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02, "intermediate_size": 512,
    "logits_scaling": 6.0, "max_position_embeddings": 4096, "model_type": "granitemoe", "num_attention_heads": 24,
    "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 40,
    "output_router_logits": false, "pad_token_id": 0, "residual_multiplier": 0.22, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 10000, "router_aux_loss_coef": 0.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.46.0.dev0", "use_cache": true, "vocab_size": 49155})";
// granite-3.0-3b-a800m-instruct's config.json.
const ConfigCase kMoe("GraniteMoeForCausalLM", kConfig);
const ConfigCase kShared("GraniteMoeSharedForCausalLM", kConfig);

std::vector<std::string> sourcesOf(const WeightRow& row, int32_t spelling) {
  std::vector<std::string> names;
  for (const WeightSource& source : row.sources) {
    if (source.spelling == spelling) names.push_back(source.name);
  }
  return names;
}

TEST(GraniteMoeTest, ReadsAModelsFile) {
  EXPECT_EQ(kMoe.warnings(), "");
  const ModelConfig written = ModelConfig::fromJson(kMoe.read().toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  const ModelSpec spec = graniteMoeArchitecture().modelSpec(written);
  const LayerSpec& layer = spec.layers.at(31);
  EXPECT_EQ(layer.attention.scale, 0.015625f);
  EXPECT_EQ(layer.residual_scale, 0.22f);
  EXPECT_EQ(spec.embedding.scale, 12.0f);
  EXPECT_EQ(spec.head.scale, 1.0f / 6);
  EXPECT_EQ(layer.mlp.kind, MlpKind::kExperts);
  EXPECT_EQ(layer.mlp.experts, 40);
  EXPECT_EQ(layer.mlp.top_k, 8);
  EXPECT_TRUE(layer.mlp.normalised);
  EXPECT_EQ(layer.mlp.shared_size, 0);
}

TEST(GraniteMoeTest, TheSharedExpertHasNoGate) {
  const ModelConfig config = kShared.read({{"shared_intermediate_size", 768}});
  const ModelSpec spec = graniteMoeSharedArchitecture().modelSpec(config);
  EXPECT_EQ(spec.layers.at(0).mlp.shared_size, 768);
  EXPECT_FALSE(spec.layers.at(0).mlp.shared_gate);
  const WeightTable table = graniteMoeSharedArchitecture().weightTable(config);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kSharedGate)), nullptr);
  // The source has the activated half first, the slot the other one.
  const WeightRow& fc = *findRow(table, slotOf(LinearId::kSharedFc));
  ASSERT_EQ(fc.sources.size(), 2u);
  EXPECT_EQ(fc.sources[0].name, "model.layers.{layer}.shared_mlp.input_linear.weight");
  EXPECT_EQ(fc.sources[0].in_source.begin, 768);
  EXPECT_EQ(fc.sources[1].in_source.begin, 0);
  EXPECT_EQ(fc.lora_targets[0].in_module.begin, 768);
  for (const Json& none : {Json(0), Json(nullptr)}) {
    EXPECT_EQ(expertsConfig(kShared.read({{"shared_intermediate_size", none}})).shared_size, 0);
  }
  EXPECT_THAT(kShared.refusal({{"shared_intermediate_size", -1}}), HasSubstr("shared_intermediate_size"));
}

TEST(GraniteMoeTest, FilesNameTheExpertsInTwoWays) {
  const WeightTable table = graniteMoeArchitecture().weightTable(kMoe.read());
  const WeightRow& router = *findRow(table, slotOf(LinearId::kRouter));
  const WeightRow& proj = *findRow(table, slotOf(LinearId::kExpertsProj));
  const std::string block = "model.layers.{layer}.block_sparse_moe.";
  EXPECT_THAT(sourcesOf(router, 0), ElementsAre(block + "router.layer.weight"));
  EXPECT_THAT(sourcesOf(router, 1), ElementsAre(block + "router.weight"));
  EXPECT_THAT(sourcesOf(proj, 0), ElementsAre(block + "output_linear.weight"));
  EXPECT_THAT(sourcesOf(proj, 1), ElementsAre(block + "experts.down_proj"));
}

TEST(GraniteMoeTest, AdaptersNameTheParametersOfAllExperts) {
  const WeightTable table = graniteMoeArchitecture().weightTable(kMoe.read());
  EXPECT_THAT(expertParameters(table, "block_sparse_moe.input_linear", 0), ElementsAre("weight"));
  EXPECT_THAT(expertParameters(table, "block_sparse_moe.output_linear", 0), ElementsAre("weight"));
  EXPECT_THAT(expertParameters(table, "block_sparse_moe.experts", 0), ElementsAre("gate_up_proj", "down_proj"));
  EXPECT_EQ(findModules(table, "block_sparse_moe.router.layer", 0).size(), 1u);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kHead)), nullptr) << "the head is the embedding";
}

TEST(GraniteMoeTest, RefusesOtherActivationsAndCounts) {
  EXPECT_THAT(kMoe.refusal({{"hidden_act", "gelu"}}), HasSubstr("hidden_act 'gelu' is not supported in a mixture"));
  EXPECT_THAT(kMoe.refusal({{"num_experts_per_tok", 41}}), HasSubstr("40 experts, of which a token takes 41"));
  EXPECT_THAT(kMoe.refusal({{"logits_scaling", 0}}), HasSubstr("'logits_scaling' must be from"));
}

}  // namespace
}  // namespace chorus
