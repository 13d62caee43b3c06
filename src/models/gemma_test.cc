#include "models/gemma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// gemma-2-2b's config.json.
const ConfigCase kGemma2("Gemma2ForCausalLM", R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32",
    "transformers_version": "4.42.4", "use_cache": true, "vocab_size": 256000})");
// Differences and additions of gemma-2-9b's config.
const Json k9b = {{"hidden_size", 3584},       {"intermediate_size", 14336},
                  {"num_attention_heads", 16}, {"num_hidden_layers", 42},
                  {"num_key_value_heads", 8},  {"sliding_window_size", 4096},
                  {"torch_dtype", "bfloat16"}, {"transformers_version", "4.42.0.dev0"}};
// gemma-3-1b-it's config.json.
const ConfigCase kGemma3("Gemma3ForCausalLM", R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 106], "final_logit_softcapping": null, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})");

// gemma-2b's config.json.
const ConfigCase kGemma("GemmaForCausalLM", R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu",
    "hidden_activation": null, "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 16384,
    "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8, "num_hidden_layers": 18,
    "num_key_value_heads": 1, "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
    "torch_dtype": "bfloat16", "transformers_version": "4.38.0.dev0", "use_cache": true, "vocab_size": 256000})");

ModelSpec gemma2(const Json& changes = Json::object()) { return gemma2Architecture().modelSpec(kGemma2.read(changes)); }
ModelSpec gemma3(const Json& changes = Json::object()) { return gemma3Architecture().modelSpec(kGemma3.read(changes)); }

// The layers that attend to everything.
std::vector<size_t> fullLayers(const ModelSpec& spec) {
  std::vector<size_t> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].attention.window == 0) layers.push_back(i);
  }
  return layers;
}

TEST(Gemma1Test, ReadsAModelsFile) {
  const ModelConfig config = kGemma.read();
  EXPECT_EQ(kGemma.warnings(), "");
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  const ModelSpec spec = gemmaArchitecture().modelSpec(written);
  EXPECT_EQ(spec.embedding.scale, 45.25f) << "the square root of 2048 in bfloat16";
  const LayerSpec& layer = spec.layers.at(17);
  EXPECT_EQ(layer.residual, ResidualForm::kPre);
  EXPECT_EQ(layer.mlp.activation, Activation::kGeluTanh) << "gelu is the approximation in these files";
  EXPECT_EQ(layer.attention.window, 0);
  for (const WeightRow& row : gemmaArchitecture().weightTable(written)) {
    EXPECT_EQ(row.sources.at(0).transform.add, row.slot.kind == SlotKind::kNorm ? 1.0f : 0.0f) << row.name;
  }
}

TEST(Gemma1Test, AbsentKeysHaveTransformersValues) {
  const ConfigCase none("GemmaForCausalLM", R"({"architectures": ["GemmaForCausalLM"]})");
  const ConfigCase all("GemmaForCausalLM", R"({"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
      "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true, "rope_theta": 10000, "attention_bias": false})");
  EXPECT_EQ(none.read().toJson(), all.read().toJson());
  EXPECT_THAT(kGemma.refusal({{"use_bidirectional_attention", true}}), HasSubstr("'use_bidirectional_attention'"));
  EXPECT_TRUE(kGemma.read({{"attention_bias", true}}).attn_bias);
}

TEST(Gemma2Test, ReadsAModelsFile) {
  const ModelConfig config = kGemma2.read();
  EXPECT_EQ(kGemma2.warnings(), "");
  EXPECT_EQ(kGemma2.warnings(k9b), "");
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelSpec spec = gemma2Architecture().modelSpec(config);
  EXPECT_EQ(spec.head.softcap, 30.0f);
  const LayerSpec& layer = spec.layers.at(0);
  EXPECT_EQ(layer.residual, ResidualForm::kSandwich);
  EXPECT_EQ(layer.mlp.kind, MlpKind::kGated);
  EXPECT_EQ(layer.mlp.activation, Activation::kGeluTanh);
  EXPECT_EQ(layer.attention.softcap, 50.0f);
  EXPECT_EQ(layer.attention.scale, 1.0f / 16);
  EXPECT_EQ(layer.attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(gemma2({{"query_pre_attn_scalar", 144}}).layers.at(0).attention.scale, 1.0f / 12);
}

TEST(Gemma2Test, EveryOtherLayerHasTheWindow) {
  EXPECT_THAT(fullLayers(gemma2({{"num_hidden_layers", 5}})), ElementsAre(1, 3));
  EXPECT_EQ(gemma2().layers.at(0).attention.window, 4096);
  const Json types = {"full_attention", "sliding_attention", "sliding_attention"};
  EXPECT_THAT(fullLayers(gemma2({{"num_hidden_layers", 3}, {"layer_types", types}})), ElementsAre(0));
}

TEST(Gemma2Test, NullIsNoSoftCap) {
  const ModelSpec spec = gemma2({{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  EXPECT_EQ(spec.layers.at(0).attention.softcap, 0.0f);
  EXPECT_EQ(spec.head.softcap, 0.0f);
}

TEST(Gemma2Test, AbsentKeysHaveTransformersValues) {
  const ConfigCase none("Gemma2ForCausalLM", R"({"architectures": ["Gemma2ForCausalLM"]})");
  const ConfigCase all("Gemma2ForCausalLM", R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
      "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true, "rope_theta": 10000, "attention_bias": false, "query_pre_attn_scalar": 256,
      "sliding_window": 4096, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0})");
  EXPECT_EQ(none.read().toJson(), all.read().toJson());
}

TEST(GemmaTest, TheSourceKeepsNormsAsTheirDifferenceFromOne) {
  const std::string layer = "transformer.layers.{layer}.";
  std::vector<std::string> names;
  for (const WeightRow& row : gemma3Architecture().weightTable(kGemma3.read())) {
    const bool norm = row.slot.kind == SlotKind::kNorm;
    EXPECT_EQ(row.sources.at(0).transform.add, norm ? 1.0f : 0.0f) << row.name;
    if (norm) names.push_back(row.name + " < " + row.sources.at(0).name);
  }
  const std::string source = " < model.layers.{layer}.";
  EXPECT_THAT(names,
              ElementsAre(layer + "input_layernorm.weight" + source + "input_layernorm.weight",
                          layer + "attention.q_layernorm.weight" + source + "self_attn.q_norm.weight",
                          layer + "attention.k_layernorm.weight" + source + "self_attn.k_norm.weight",
                          layer + "post_layernorm.weight" + source + "post_attention_layernorm.weight",
                          layer + "pre_feedforward_layernorm.weight" + source + "pre_feedforward_layernorm.weight",
                          layer + "post_feedforward_layernorm.weight" + source + "post_feedforward_layernorm.weight",
                          "transformer.ln_f.weight < model.norm.weight"));
}

TEST(GemmaTest, TheTypeOfTheWeightsRoundsTheScaleOfEmbeddings) {
  for (const ConfigCase* model : {&kGemma2, &kGemma3}) {
    ModelConfig config = model->read({{"hidden_size", 3072}});
    const auto scale = [&](DType dtype) {
      config.dtype = dtype;
      return findArchitecture(config.architecture).modelSpec(config).embedding.scale;
    };
    EXPECT_EQ(scale(DType::kFloat32), std::sqrt(3072.0f));
    EXPECT_EQ(scale(DType::kBFloat16), 55.5f);
    EXPECT_EQ(scale(DType::kFloat16), toFloat(toF16(std::sqrt(3072.0f))));
  }
}

TEST(GemmaTest, BiasesAreOfAllLinearsOfAttention) {
  const WeightTable table = gemma2Architecture().weightTable(kGemma2.read({{"attention_bias", true}}));
  EXPECT_NE(findRow(table, slotOf(LinearId::kQkv).bias()), nullptr);
  EXPECT_NE(findRow(table, slotOf(LinearId::kDense).bias()), nullptr);
  EXPECT_EQ(findRow(table, slotOf(LinearId::kFc).bias()), nullptr);
}

TEST(Gemma3Test, ReadsAModelsFile) {
  const ModelConfig config = kGemma3.read();
  EXPECT_EQ(kGemma3.warnings(), "");
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.qk_layernorm);
  const ModelSpec spec = gemma3Architecture().modelSpec(config);
  EXPECT_EQ(spec.head.softcap, 0.0f);
  EXPECT_EQ(spec.layers.at(0).residual, ResidualForm::kSandwich);
  EXPECT_EQ(spec.layers.at(0).attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(spec.layers.at(0).attention.softcap, 0.0f);
  EXPECT_EQ(spec.layers.at(0).attention.scale, 1.0f / 16);
}

TEST(Gemma3Test, EverySixthLayerAttendsToEverything) {
  const ModelSpec spec = gemma3();
  EXPECT_THAT(fullLayers(spec), ElementsAre(5, 11, 17, 23));
  EXPECT_EQ(spec.layers.at(0).attention.window, 512);
  EXPECT_THAT(fullLayers(gemma3({{"sliding_window_pattern", nullptr}})), ElementsAre(5, 11, 17, 23));
  EXPECT_THAT(fullLayers(gemma3({{"sliding_window_pattern", 10}})), ElementsAre(9, 19));
  const Json types = {"full_attention", "sliding_attention"};
  EXPECT_THAT(fullLayers(gemma3({{"num_hidden_layers", 2}, {"layer_types", types}, {"_sliding_window_pattern", 6}})),
              ElementsAre(0));
}

TEST(Gemma3Test, LayersWithAWindowHaveTheirOwnBase) {
  const Json scaling = {{"rope_type", "linear"}, {"factor", 8.0}};
  const Json full = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}};
  const Json sliding = {{"rope_type", "default"}, {"rope_theta", 2e4}};
  const Json old_form = {{"rope_scaling", scaling}, {"rope_local_base_freq", 2e4}};
  const Json new_form = {{"rope_theta", nullptr},
                         {"rope_local_base_freq", nullptr},
                         {"rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}}};
  for (const Json& form : {old_form, new_form}) {
    const ModelSpec spec = gemma3(form);
    const RopeSpec& local = spec.layers.at(4).attention.rope;
    EXPECT_EQ(local.base, 2e4);
    EXPECT_EQ(local.scaling.type, RopeScalingType::kNone);
    const RopeSpec& global = spec.layers.at(5).attention.rope;
    EXPECT_EQ(global.base, 1e6);
    EXPECT_EQ(global.scaling.type, RopeScalingType::kLinear);
    EXPECT_EQ(global.scaling.factor, 8.0);
  }
  EXPECT_EQ(kGemma3.warnings(new_form), "");
}

TEST(Gemma3Test, AbsentKeysHaveTransformersValues) {
  const ConfigCase none("Gemma3ForCausalLM", R"({"architectures": ["Gemma3ForCausalLM"]})");
  const ConfigCase all("Gemma3ForCausalLM", R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
      "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
      "tie_word_embeddings": true, "rope_theta": 1000000, "rope_local_base_freq": 10000, "attention_bias": false,
      "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6,
      "final_logit_softcapping": null, "attn_logit_softcapping": null})");
  EXPECT_EQ(none.read().toJson(), all.read().toJson());
}

// transformers' attention does not read the key.
TEST(Gemma3Test, ScoresHaveNoSoftCap) {
  EXPECT_EQ(gemma3({{"attn_logit_softcapping", 50.0}}).layers.at(0).attention.softcap, 0.0f);
  EXPECT_EQ(gemma3({{"final_logit_softcapping", 30.0}}).head.softcap, 30.0f);
}

TEST(GemmaTest, AWrittenConfigHasTheSameStructure) {
  for (const ConfigCase* model : {&kGemma2, &kGemma3}) {
    const ModelConfig config = model->read({{"query_pre_attn_scalar", 168}, {"final_logit_softcapping", 20.0}});
    const ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
    EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
    const Architecture& architecture = findArchitecture(config.architecture);
    const ModelSpec before = architecture.modelSpec(config), after = architecture.modelSpec(written);
    EXPECT_EQ(after.head.softcap, 20.0f);
    for (size_t i = 0; i < before.layers.size(); ++i) {
      const AttentionSpec &a = before.layers[i].attention, &b = after.layers[i].attention;
      EXPECT_EQ(b.scale, 1.0f / std::sqrt(168.0f));
      EXPECT_EQ(b.window, a.window);
      EXPECT_EQ(b.softcap, a.softcap);
      EXPECT_EQ(b.rope, a.rope);
    }
  }
}

// Reads the checkpoints that TensorRT-LLM writes for Gemma 3. Some versions call the pattern _sliding_window_pattern.
TEST(Gemma3Test, ReadsCheckpointsOfTensorRtLlm) {
  for (const char* pattern : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    const Json written = {{"architecture", "Gemma3ForCausalLM"},
                          {"dtype", "bfloat16"},
                          {"num_hidden_layers", 7},
                          {"num_attention_heads", 4},
                          {"num_key_value_heads", 1},
                          {"head_size", 256},
                          {"hidden_size", 1152},
                          {"intermediate_size", 6912},
                          {"vocab_size", 262144},
                          {"position_embedding_type", "rope_gpt_neox"},
                          {"max_position_embeddings", 32768},
                          {"hidden_act", "gelu_pytorch_tanh"},
                          {"rotary_base", 1e6},
                          {"rotary_scaling", nullptr},
                          {"inter_layernorms", true},
                          {"query_pre_attn_scalar", 256},
                          {"final_logit_softcapping", nullptr},
                          {pattern, 6},
                          {"rope_local_base_freq", 10000},
                          {"sliding_window", 512}};
    const ModelConfig config = ModelConfig::fromJson(written, "c");
    EXPECT_EQ(errorOf([&] { architectureOf(config, "c"); }), "");
    const ModelSpec spec = gemma3Architecture().modelSpec(config);
    EXPECT_THAT(fullLayers(spec), ElementsAre(5));
    EXPECT_EQ(spec.layers.at(4).attention.rope.base, 1e4);
    EXPECT_EQ(spec.layers.at(5).attention.rope.base, 1e6);
    EXPECT_NE(findRow(gemma3Architecture().weightTable(config), slotOf(LinearId::kHead)), nullptr);
  }
}

TEST(GemmaTest, RefusesWhatItDoesNotCompute) {
  for (const ConfigCase* model : {&kGemma2, &kGemma3}) {
    EXPECT_THAT(model->refusal({{"use_bidirectional_attention", true}}), HasSubstr("'use_bidirectional_attention'"));
    EXPECT_EQ(model->refusal({{"use_bidirectional_attention", false}}), "");
    EXPECT_THAT(model->refusal({{"sliding_window", nullptr}}), HasSubstr("'sliding_window' must be a number"));
    EXPECT_THAT(model->refusal({{"query_pre_attn_scalar", 0}}), HasSubstr("query_pre_attn_scalar 0 is not supported"));
    EXPECT_THAT(model->refusal({{"final_logit_softcapping", 0}}), HasSubstr("final_logit_softcapping 0 is not"));
    EXPECT_THAT(model->refusal({{"hidden_activation", "quick_gelu"}}), HasSubstr("quick_gelu"));
  }
  EXPECT_THAT(kGemma3.refusal({{"sliding_window_pattern", 0}}), HasSubstr("'sliding_window_pattern' must be at least"));
  EXPECT_THAT(kGemma3.refusal({{"rope_parameters", {{"rope_theta", 1e6}}}}), HasSubstr("must have only"));
  EXPECT_THAT(kGemma3.refusal({{"rope_parameters", 1}}), HasSubstr("'rope_parameters' must be an object"));
  const Json scaled = {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}};
  EXPECT_THAT(kGemma3.refusal({{"rope_parameters", scaled}}), HasSubstr("'sliding_attention' is not supported"));
}

}  // namespace
}  // namespace chorus
