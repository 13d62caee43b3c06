#include "models/qwen3_moe.h"

#include "models/experts.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

const ExpertsForm& qwen3MoeForm() {
  static const ExpertsForm form;
  return form;
}

ModelConfig qwen3MoeConfig(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  addUniformWindowKeys(keys);
  addQwenExpertsKeys(false, keys);
  keys.used.insert(keys.used.end(), {"attention_bias", "use_sliding_window"});
  keys.inert.push_back("max_window_layers");
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"num_key_value_heads", 4}, {"max_position_embeddings", 32768}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "Qwen3MoeForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.qk_layernorm = true;
  config.finalize(source);
  if (jsonGetOr(json, "use_sliding_window", false, source)) readUniformWindow(json, source, 4096, config);
  readQwenExperts(json, source, false, config);
  return config;
}

WeightTable qwen3MoeTable(const ModelConfig& c) {
  return llamaTable(
      c, {.qkv_bias = c.attn_bias, .dense_bias = c.attn_bias, .qk_norm = QkNorm::kPerHead, .experts = &qwen3MoeForm()});
}

ModelSpec qwen3MoeSpec(const ModelConfig& config) {
  LayerSpec layer = denseLayerSpec(config);
  layer.attention.qk_norm = QkNorm::kPerHead;
  ModelSpec spec = modelSpec(config, layer);
  addExperts(config, spec);
  return spec;
}

std::vector<FieldValues> qwen3MoeFields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  addExpertsFields(fields);
  fields.push_back({"attn_bias", {true}});
  fields.push_back({"qk_layernorm", {true}});
  return fields;
}
}  // namespace

Architecture qwen3MoeArchitecture() {
  return {.name = "Qwen3MoeForCausalLM",
          .configFromHuggingFace = qwen3MoeConfig,
          .weightTable = qwen3MoeTable,
          .modelSpec = qwen3MoeSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = qwen3MoeFields(),
          .models = {"Qwen3-MoE"},
          .structure = "Qwen3 with a mixture of experts, and dense layers among the others"};
}

}  // namespace chorus
