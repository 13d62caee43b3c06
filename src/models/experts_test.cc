#include "models/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/shard.h"
#include "models/mixtral.h"
#include "models/qwen2_moe.h"
#include "models/qwen3_moe.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Mixtral-8x7B's config.json.
const ConfigCase kMixtral("MixtralForCausalLM", R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
    "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0",
    "use_cache": true, "vocab_size": 32000})");

// Qwen1.5-MoE-A2.7B's config.json.
const ConfigCase kQwen2Moe("Qwen2MoeForCausalLM", R"({"architectures": ["Qwen2MoeForCausalLM"],
    "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151643,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
    "max_position_embeddings": 8192, "max_window_layers": 21, "model_type": "qwen2_moe", "moe_intermediate_size": 1408,
    "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
    "num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": false, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632,
    "sliding_window": 32768, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.39.0",
    "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");

// Qwen3-30B-A3B's config.json.
const ConfigCase kQwen3Moe("Qwen3MoeForCausalLM", R"({"architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32,
    "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");

TEST(ExpertsConfigTest, ReadsModelsFiles) {
  for (const ConfigCase* model : {&kMixtral, &kQwen2Moe, &kQwen3Moe}) EXPECT_EQ(model->warnings(), "");
  const ModelConfig mixtral = kMixtral.read();
  EXPECT_EQ(mixtral.hidden_act, "swiglu");
  EXPECT_EQ(mixtral.extra["moe"], Json::parse(R"({"num_experts": 8, "top_k": 2, "normalization_mode": 1})"));
  EXPECT_FALSE(mixtral.extra.contains("moe_intermediate_size"));
  const ModelConfig qwen2 = kQwen2Moe.read();
  EXPECT_EQ(qwen2.extra["moe"], Json::parse(R"({"num_experts": 60, "top_k": 4, "normalization_mode": 0})"));
  EXPECT_EQ(qwen2.extra["moe_intermediate_size"], 1408);
  EXPECT_EQ(qwen2.extra["moe_shared_expert_intermediate_size"], 5632);
  const ExpertsConfig qwen3 = expertsConfig(kQwen3Moe.read());
  EXPECT_EQ(qwen3.experts, 128);
  EXPECT_TRUE(qwen3.normalised);
  EXPECT_EQ(qwen3.size, 768);
  EXPECT_EQ(qwen3.shared_size, 0);
}

TEST(ExpertsConfigTest, ACheckpointMayHaveTheOlderFlatFields) {
  ModelConfig config = kMixtral.read();
  config.extra.erase("moe");
  config.extra["moe_num_experts"] = 4;
  config.extra["moe_top_k"] = 3;
  config.extra["moe_normalization_mode"] = 0;
  config.extra["moe_tp_mode"] = 2;
  architectureOf(config, "c");
  const ExpertsConfig experts = expertsConfig(config);
  EXPECT_EQ(experts.experts, 4);
  EXPECT_EQ(experts.top_k, 3);
  EXPECT_FALSE(experts.normalised);
}

TEST(ExpertsConfigTest, RefusesWhatItDoesNotCompute) {
  const auto refusal = [](const char* field, const Json& value) {
    ModelConfig config = kMixtral.read();
    config.extra["moe"][field] = value;
    return errorOf([&] {
      architectureOf(config, "c");
      expertsConfig(config);
    });
  };
  EXPECT_EQ(refusal("sparse_mixer_epsilon", 0.01), "");
  EXPECT_THAT(refusal("normalization_mode", 2), HasSubstr("moe.normalization_mode 2 is not supported; 0 (NONE) and 1"));
  EXPECT_THAT(refusal("top_k", 9), HasSubstr("config.json: moe: 8 experts, of which a token takes 9: there must be"));
  EXPECT_THAT(refusal("top_k", 0), HasSubstr("moe: 8 experts, of which a token takes 0"));
  EXPECT_THAT(refusal("num_experts", 0), HasSubstr("moe: 0 experts"));
  EXPECT_THAT(refusal("num_experts", 20000), HasSubstr("there must be from 1 to 16384 experts"));
  EXPECT_THAT(kMixtral.refusal({{"num_experts_per_tok", 9}}), HasSubstr("c: 8 experts, of which a token takes 9"));
  EXPECT_THAT(refusal("num_experts", "two"), HasSubstr("moe.num_experts \"two\" is not supported"));
  EXPECT_THAT(refusal("device_limited_n_group", 2), HasSubstr("moe: key 'device_limited_n_group' is not supported"));
  EXPECT_THAT(kMixtral.refusal({{"hidden_act", "gelu"}}), HasSubstr("hidden_act 'gelu' is not supported in a mixture"));
  EXPECT_THAT(kQwen2Moe.refusal({{"qkv_bias", false}}), HasSubstr("'qkv_bias' is supported only at its default"));
  EXPECT_THAT(kQwen2Moe.refusal({{"shared_expert_intermediate_size", 0}}),
              HasSubstr("'shared_expert_intermediate_size' must be from 1"));
  EXPECT_THAT(kQwen3Moe.refusal({{"decoder_sparse_step", 0}}), HasSubstr("'decoder_sparse_step' must be at least 1"));
  EXPECT_THAT(kQwen3Moe.refusal({{"mlp_only_layers", {"a"}}}), HasSubstr("must be a list of layers' numbers"));
  ModelConfig dense = kMixtral.read();
  dense.architecture = "LlamaForCausalLM";
  dense.hidden_act = "silu";
  EXPECT_THAT(errorOf([&] { architectureOf(dense, "c"); }), HasSubstr("moe.num_experts 8 is not supported by Llama"));
}

TEST(ExpertsConfigTest, AllLayersTogetherHaveALimitOfExperts) {
  const auto refusal = [](int32_t layers, int32_t experts, const Json& dense = Json::array()) {
    ModelConfig config = kQwen3Moe.read({{"num_hidden_layers", layers}, {"mlp_only_layers", dense}});
    config.extra["moe"]["num_experts"] = experts;
    return errorOf([&] { expertsConfig(config); });
  };
  EXPECT_EQ(refusal(64, 1 << 14), "");
  EXPECT_EQ(refusal(65, 1 << 14),
            "config.json: moe: 65 layers of 16384 experts: there must be at most 1048576 experts in all layers");
  EXPECT_EQ(refusal(65, 1 << 14, {3}), "") << "dense layers do not count";
}

TEST(ExpertsTableTest, SomeLayersMayBeDense) {
  const ModelConfig config =
      kQwen3Moe.read({{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3, 77}}});
  EXPECT_EQ(config.extra["mlp_only_layers"], Json({0, 2, 3, 4}));
  const Architecture& architecture = findArchitecture(config.architecture);
  const WeightTable table = architecture.weightTable(config);
  EXPECT_THAT(findRow(table, slotOf(LinearId::kRouter))->layers, ElementsAre(1, 5));
  EXPECT_THAT(findRow(table, slotOf(LinearId::kFc))->layers, ElementsAre(0, 2, 3, 4));
  const ModelSpec spec = architecture.modelSpec(config);
  EXPECT_EQ(spec.layers[1].mlp.kind, MlpKind::kExperts);
  EXPECT_EQ(spec.layers[1].mlp.intermediate_size, 768);
  EXPECT_EQ(spec.layers[3].mlp.kind, MlpKind::kGated);
  EXPECT_EQ(spec.layers[3].mlp.intermediate_size, 6144);
  std::vector<std::string> names;
  for (const RankTensor& tensor : rankTensors(table, config, 0)) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::Contains("transformer.layers.1.mlp.router.weight"));
  EXPECT_THAT(names, testing::Contains("transformer.layers.2.mlp.gate.weight"));
  EXPECT_THAT(names, testing::Not(testing::Contains("transformer.layers.2.mlp.router.weight")));
}

TEST(ExpertsTableTest, TensorsHaveAnExpertDimensionAndTheRouterItsOwnType) {
  ModelConfig config = kQwen2Moe.read();
  config.dtype = DType::kBFloat16;
  config.mapping.tp_size = 2;
  const WeightTable table = findArchitecture(config.architecture).weightTable(config);
  const auto tensors = rankTensors(table, config, 1);
  const auto find = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors, "transformer.layers.3.mlp." + name + ".weight", &RankTensor::name);
    EXPECT_NE(found, tensors.end()) << name;
    return *found;
  };
  EXPECT_THAT(find("router").shape, ElementsAre(60, 2048));
  EXPECT_EQ(find("router").dtype, DType::kFloat32);
  EXPECT_THAT(find("fc").shape, ElementsAre(60, 1408, 2048));
  EXPECT_THAT(find("proj").shape, ElementsAre(60, 2048, 704));
  EXPECT_EQ(find("proj").dtype, DType::kBFloat16);
  EXPECT_THAT(find("shared_expert.fc").shape, ElementsAre(5632, 2048));
  EXPECT_THAT(find("shared_expert_gate").shape, ElementsAre(1, 2048));
  // The rank's rows are its share of the other half, then its share of the activated one.
  const TensorSlice slice = sliceForRank(*find("fc").row, 2, 1);
  ASSERT_EQ(slice.runs.size(), 2u);
  EXPECT_EQ(slice.runs[0].begin, 704);
  EXPECT_EQ(slice.runs[1].begin, 1408 + 704);
}

TEST(ExpertsTableTest, AFileHasOneSpellingOfEachTensor) {
  const auto sourcesWith = [](std::initializer_list<const char*> present) {
    const ModelConfig config = kMixtral.read();
    WeightTable table = findArchitecture(config.architecture).weightTable(config);
    keepSpelling(table, SourceFormat::kHuggingFace,
                 [&](const std::string& name) { return std::ranges::find(present, name) != present.end(); });
    std::vector<std::string> names;
    for (const LinearId id : {LinearId::kRouter, LinearId::kExpertsFc, LinearId::kExpertsProj}) {
      for (const WeightSource& source : findRow(table, slotOf(id))->sources) names.push_back(source.name);
    }
    return names;
  };
  const std::string layer = "model.layers.{layer}.";
  EXPECT_THAT(sourcesWith({}),
              ElementsAre(layer + "block_sparse_moe.gate.weight", layer + "block_sparse_moe.experts.{expert}.w3.weight",
                          layer + "block_sparse_moe.experts.{expert}.w1.weight",
                          layer + "block_sparse_moe.experts.{expert}.w2.weight"));
  EXPECT_THAT(sourcesWith({"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.experts.gate_up_proj",
                           "model.layers.0.mlp.experts.down_proj"}),
              ElementsAre(layer + "mlp.gate.weight", layer + "mlp.experts.gate_up_proj",
                          layer + "mlp.experts.gate_up_proj", layer + "mlp.experts.down_proj"));
  const ModelConfig config = kMixtral.read();
  const WeightTable table = findArchitecture(config.architecture).weightTable(config);
  const WeightRow& fc = *findRow(table, slotOf(LinearId::kExpertsFc));
  EXPECT_THAT(sourceShape(fc, fc.sources[0]), ElementsAre(14336, 4096));
  EXPECT_THAT(sourceShape(fc, fc.sources[2]), ElementsAre(8, 2 * 14336, 4096));
}

}  // namespace
}  // namespace chorus
