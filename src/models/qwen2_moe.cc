#include "models/qwen2_moe.h"

#include "models/experts.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

const ExpertsForm& qwen2MoeForm() {
  static const ExpertsForm form;
  return form;
}

// In a config without layer_types, every second layer before max_window_layers has the window.
void readWindow(const Json& json, std::string_view source, ModelConfig& config) {
  const bool used = jsonGetOr(json, "use_sliding_window", false, source);
  const auto end = jsonGetOr<int32_t>(json, "max_window_layers", 28, source);
  readSlidingWindow(json, source,
                    {.window = 4096, .slides = [=](int32_t layer) { return used && layer % 2 == 0 && layer < end; }},
                    config);
}

ModelConfig qwen2MoeConfig(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  addQwenWindowKeys(keys);
  addQwenExpertsKeys(true, keys);
  keys.only_at_default.emplace_back("qkv_bias", true);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"num_key_value_heads", 16}, {"max_position_embeddings", 32768}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "Qwen2MoeForCausalLM";
  config.attn_bias = true;
  config.finalize(source);
  readWindow(json, source, config);
  readQwenExperts(json, source, true, config);
  return config;
}

// q, k and v always have biases, because TensorRT-LLM takes a Qwen2-MoE checkpoint without attn_bias to have them.
WeightTable qwen2MoeTable(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = true, .experts = &qwen2MoeForm()});
}

ModelSpec qwen2MoeSpec(const ModelConfig& config) {
  ModelSpec spec = modelSpec(config, denseLayerSpec(config));
  addExperts(config, spec);
  return spec;
}

std::vector<FieldValues> qwen2MoeFields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  addExpertsFields(fields);
  fields.push_back({"attn_bias", {true}});
  return fields;
}
}  // namespace

Architecture qwen2MoeArchitecture() {
  return {
      .name = "Qwen2MoeForCausalLM",
      .configFromHuggingFace = qwen2MoeConfig,
      .weightTable = qwen2MoeTable,
      .modelSpec = qwen2MoeSpec,
      .ignored_sources = llamaIgnoredSources(),
      .fields = qwen2MoeFields(),
      .models = {"Qwen1.5-MoE", "Qwen2-MoE"},
      .structure = "Qwen2 with a mixture of experts, a shared expert with a gate, and dense layers among the others"};
}

}  // namespace chorus
