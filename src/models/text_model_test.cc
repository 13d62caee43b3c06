#include "models/text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/names.h"
#include "models/llama.h"
#include "models/sliding_window.h"
#include "models/testing/config_case.h"

namespace chorus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The config.json of Mistral-Small-3.1-24B.
const ConfigCase kMistral3("Mistral3ForConditionalGeneration",
                           R"({"architectures": ["Mistral3ForConditionalGeneration"],
    "image_token_index": 10, "model_type": "mistral3", "multimodal_projector_bias": false,
    "projector_hidden_act": "gelu", "spatial_merge_size": 2, "text_config": {"attention_dropout": 0.0, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 32768,
      "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0, "sliding_window": null,
      "use_cache": true, "vocab_size": 131072},
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1024},
    "vision_feature_layer": -1})");

// The config.json of gemma-3-4b-it.
const ConfigCase kGemma3("Gemma3ForConditionalGeneration", R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
    "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {"hidden_size": 2560,
      "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "vision_config": {"hidden_size": 1152,
      "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model", "num_attention_heads": 16,
      "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})");

// The config.json of Qwen2-VL-2B-Instruct, with the text model's keys at the top level.
const char* const kQwen2VlFile = R"({"architectures": ["Qwen2VLForConditionalGeneration"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
    "vision_token_id": 151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu",
    "hidden_size": 1536, "initializer_range": 0.02, "intermediate_size": 8960, "max_position_embeddings": 32768,
    "max_window_layers": 28, "model_type": "qwen2_vl", "num_attention_heads": 12, "num_hidden_layers": 28,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.41.2", "use_cache": true,
    "use_sliding_window": false, "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16,
      "in_chans": 3, "hidden_size": 1536, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}, "vocab_size": 151936})";
const ConfigCase kQwen2Vl("Qwen2VLForConditionalGeneration", kQwen2VlFile);

const ConfigCase kQwen3Vl("Qwen3VLForConditionalGeneration", R"({"architectures": ["Qwen3VLForConditionalGeneration"],
    "image_token_id": 151655, "model_type": "qwen3_vl", "text_config": {"attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02, "intermediate_size": 9728,
      "max_position_embeddings": 262144, "model_type": "qwen3_vl_text", "num_attention_heads": 32,
      "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling":
      {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"}, "rope_theta": 5000000,
      "tie_word_embeddings": true, "use_cache": true, "vocab_size": 151936}, "tie_word_embeddings": true,
    "transformers_version": "4.57.0.dev0", "video_token_id": 151656, "vision_config": {"depth": 24},
    "vision_end_token_id": 151653, "vision_start_token_id": 151652})");

// The case's text_config with changes.
Json text(const Json& json, const Json& changes) {
  Json changed = json.at("text_config");
  changed.update(changes);
  return {{"text_config", changed}};
}

// The config after a checkpoint's JSON was written and read again.
ModelConfig writtenAndRead(const ModelConfig& config) {
  ModelConfig written = ModelConfig::fromJson(config.toJson(), "c");
  EXPECT_EQ(errorOf([&] { architectureOf(written, "c"); }), "");
  return written;
}
ModelSpec specOf(const ModelConfig& config) { return findArchitecture(config.architecture).modelSpec(config); }
WeightTable tableOf(const ModelConfig& config) { return findArchitecture(config.architecture).weightTable(config); }
// The names of the embedding, of a linear and of the output head in one spelling.
std::vector<std::string> namesOf(const ModelConfig& config, int32_t spelling) {
  const WeightTable table = tableOf(config);
  std::vector<std::string> names;
  for (const WeightSlot& slot : {slotOf(TableId::kTokens), slotOf(LinearId::kProj), slotOf(LinearId::kHead)}) {
    const WeightRow* row = findRow(table, slot);
    if (row == nullptr) continue;
    for (const WeightSource& source : row->sources) {
      if (source.spelling == spelling) names.push_back(source.name);
    }
  }
  return names;
}

TEST(TextModelTest, ReadsTheTextModelOfMistral3) {
  const ModelConfig config = writtenAndRead(kMistral3.read());
  EXPECT_EQ(kMistral3.warnings(), "");
  EXPECT_EQ(config.architecture, "Mistral3ForConditionalGeneration");
  EXPECT_EQ(config.num_hidden_layers, 40);
  EXPECT_EQ(config.head_size, 128);
  EXPECT_EQ(config.rotary_base, 1e9);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(layerWindows(config), std::vector<int64_t>(40, 0));
  const std::string proj = "layers.{layer}.mlp.down_proj.weight";
  EXPECT_THAT(namesOf(config, 0), ElementsAre("model.language_model.embed_tokens.weight",
                                              "model.language_model." + proj, "lm_head.weight"));
  EXPECT_THAT(namesOf(config, 1), ElementsAre("language_model.model.embed_tokens.weight",
                                              "language_model.model." + proj, "language_model.lm_head.weight"));
  EXPECT_THAT(namesOf(config, 2), ElementsAre("model.embed_tokens.weight", "model." + proj, "lm_head.weight"));
}

TEST(TextModelTest, ReadsTheTextModelOfGemma3) {
  const ModelConfig config = writtenAndRead(kGemma3.read());
  EXPECT_EQ(kGemma3.warnings(), "");
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_attention_heads, 8);
  EXPECT_TRUE(config.tie_word_embeddings);
  const ModelSpec spec = specOf(config);
  EXPECT_EQ(spec.layers.at(0).attention.window, 1024);
  EXPECT_EQ(spec.layers.at(5).attention.rope.scaling.factor, 8.0);
  EXPECT_EQ(spec.layers.at(5).residual, ResidualForm::kSandwich);
}

TEST(TextModelTest, ReadsFlatAndNestedConfigs) {
  const ModelConfig config = kQwen2Vl.read();
  EXPECT_EQ(kQwen2Vl.warnings(), "");
  EXPECT_EQ(config.rotary_base, 1e6);
  EXPECT_EQ(config.rotary_scaling.type, RopeScalingType::kNone);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(findRow(tableOf(writtenAndRead(config)), slotOf(LinearId::kQkv).bias()) != nullptr);
  Json nested = Json::parse(kQwen2VlFile);
  Json inner = nested;
  inner["model_type"] = "qwen2_vl_text";
  nested["text_config"] = inner;
  // The keys at the top level now have no effect, except for tied embeddings.
  nested["hidden_size"] = 7;
  const auto read = [&](const Json& json) {
    return findArchitecture("Qwen2VLForConditionalGeneration").configFromHuggingFace(json, "c");
  };
  EXPECT_EQ(read(nested).toJson(), config.toJson());
  nested["tie_word_embeddings"] = false;
  EXPECT_TRUE(read(nested).tie_word_embeddings);
  nested["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(read(nested).tie_word_embeddings);
}

TEST(TextModelTest, RopeSectionsMustDivideHalfAHead) {
  EXPECT_EQ(writtenAndRead(kQwen3Vl.read()).rotary_base, 5e6);
  EXPECT_EQ(kQwen3Vl.warnings(), "");
  const auto refusal = [](const Json& scaling) { return kQwen2Vl.refusal({{"rope_scaling", scaling}}); };
  EXPECT_EQ(refusal({{"type", "mrope"}}), "");
  EXPECT_EQ(refusal({{"rope_type", "default"}, {"type", "default"}, {"mrope_section", {30, 30, 4}}}), "");
  EXPECT_THAT(refusal({{"type", "mrope"}, {"mrope_section", {16, 24, 23}}}),
              HasSubstr("'mrope_section' has 63 elements in all, but half a head has 64"));
  for (const Json& sections : {Json({64}), Json({16, 24, "24"}), Json({-16, 48, 32}), Json(64)}) {
    EXPECT_THAT(refusal({{"type", "mrope"}, {"mrope_section", sections}}), HasSubstr("must be a list of three sizes"));
  }
  EXPECT_THAT(refusal({{"type", "dynamic"}, {"factor", 2.0}, {"mrope_section", {16, 24, 24}}}), HasSubstr("'dynamic'"));
  // Mistral 3 has no mrope_section, so it refuses the type mrope.
  const Json json = Json::parse(R"({"text_config": {"hidden_size": 32, "model_type": "mistral"}})");
  EXPECT_THAT(kMistral3.refusal(text(json, {{"rope_scaling", {{"type", "mrope"}}},
                                            {"intermediate_size", 8},
                                            {"num_hidden_layers", 2},
                                            {"num_attention_heads", 2},
                                            {"vocab_size", 9}})),
              HasSubstr("rope_type 'mrope' is not supported"));
}

TEST(TextModelTest, RefusesOtherTextModels) {
  EXPECT_THAT(kMistral3.refusal({{"text_config", nullptr}}), HasSubstr("'text_config' is missing"));
  EXPECT_THAT(kMistral3.refusal({{"text_config", 3}}), HasSubstr("'text_config' must be an object"));
  EXPECT_THAT(kMistral3.refusal({{"text_config", {{"model_type", "mamba"}}}}),
              HasSubstr("model_type 'mamba' is not supported in Mistral3ForConditionalGeneration; "
                        "supported: mistral, ministral3"));
  EXPECT_THAT(kMistral3.refusal({{"text_config", {{"model_type", "mistral"}}}}), HasSubstr("c: text_config"));
  EXPECT_THAT(kMistral3.refusal({{"quantization_config", {{"quant_method", "awq"}}}}),
              HasSubstr("'quantization_config'"));
  EXPECT_THAT(kMistral3.warnings({{"surprise", 1}}), HasSubstr("surprise"));
}

// A checkpoint's config may name the text model's architecture, and its fields are those of this architecture.
TEST(TextModelTest, ChecksTheFieldsOfTheTextModel) {
  Json json = kGemma3.read().toJson();
  json["text_architecture"] = "Qwen3ForCausalLM";
  EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }), HasSubstr("text_architecture"));
  json.erase("text_architecture");
  EXPECT_EQ(errorOf([&] { tableOf(writtenAndRead(ModelConfig::fromJson(json, "c"))); }), "");
  json["qk_layernorm"] = false;
  json["new_decoder_architecture"] = true;
  EXPECT_THAT(errorOf([&] { architectureOf(ModelConfig::fromJson(json, "c"), "c"); }), HasSubstr("new_decoder"));
}

// Mistral 3 has one of two text models.
TEST(TextModelTest, TheTypeOfTheTextModelDecides) {
  Json json = Json::parse(R"({"hidden_size": 32, "intermediate_size": 8, "model_type": "ministral3",
      "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 9})");
  const ModelConfig config = kMistral3.read({{"text_config", json}});
  EXPECT_EQ(config.extra["text_architecture"], "Ministral3ForCausalLM");
  const ModelSpec spec = specOf(writtenAndRead(config));
  EXPECT_NE(spec.layers.at(0).attention.query_scaling.beta, 0) << "Ministral 3's queries grow with their position";
  json["model_type"] = "mistral";
  EXPECT_EQ(kMistral3.read({{"text_config", json}}).extra["text_architecture"], "MistralForCausalLM");
}

TEST(TextModelTest, OtherPartsAreLeftOut) {
  const auto isLeftOut = [](const char* model, const std::string& name) {
    return matchesAny(findArchitecture(model).left_out, name);
  };
  const char* const llava = "Mistral3ForConditionalGeneration";
  EXPECT_TRUE(isLeftOut(llava, "vision_tower.transformer.layers.0.attention.q_proj.weight"));
  EXPECT_TRUE(isLeftOut(llava, "model.vision_tower.transformer.layers.0.attention.q_proj"));
  EXPECT_TRUE(isLeftOut(llava, "multi_modal_projector.linear_1"));
  EXPECT_FALSE(isLeftOut(llava, "model.language_model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(isLeftOut(llava, "visual.blocks.0.attn.qkv"));
  EXPECT_TRUE(isLeftOut("Qwen2_5_VLForConditionalGeneration", "visual.blocks.0.attn.qkv"));
  EXPECT_FALSE(isLeftOut("LlamaForCausalLM", "visual.blocks.0.attn.qkv"));
}

}  // namespace
}  // namespace chorus
