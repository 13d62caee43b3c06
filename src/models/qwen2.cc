#include "models/qwen2.h"

#include <vector>

#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

ModelConfig qwen2Config(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  addQwenWindowKeys(keys);
  keys.only_at_default.emplace_back("use_mrope", false);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"num_key_value_heads", 32}, {"max_position_embeddings", 32768}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "Qwen2ForCausalLM";
  config.attn_bias = true;
  config.finalize(source);
  readQwenWindow(json, source, config);
  return config;
}

// q, k and v always have biases, because TensorRT-LLM takes a Qwen2 checkpoint without attn_bias to have them.
WeightTable qwen2Table(const ModelConfig& config) {
  return llamaTable(config, {.qkv_bias = true, .torchtune_rows = TorchtuneRows::kAsInSource});
}

std::vector<FieldValues> qwen2Fields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  fields.push_back({"attn_bias", {true}});
  return fields;
}
}  // namespace

Architecture qwen2Architecture() {
  return {.name = "Qwen2ForCausalLM",
          .configFromHuggingFace = qwen2Config,
          .weightTable = qwen2Table,
          .modelSpec = llamaSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = qwen2Fields(),
          .models = {"Qwen1.5", "Qwen2", "Qwen2.5 (text)"},
          .structure = "Llama with biases of q, k and v, and a sliding window in some layers"};
}

}  // namespace chorus
