#include "models/qwen3.h"

#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

ModelConfig qwen3Config(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.push_back("attention_bias");
  addQwenWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"num_key_value_heads", 32}, {"max_position_embeddings", 32768}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "Qwen3ForCausalLM";
  if (config.head_size == 0) config.head_size = 128;  // transformers' value for a config without head_dim
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.qk_layernorm = true;
  config.finalize(source);
  readQwenWindow(json, source, config);
  return config;
}

WeightTable qwen3Table(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias,
                        .dense_bias = c.attn_bias,
                        .qk_norm = QkNorm::kPerHead,
                        .torchtune_rows = TorchtuneRows::kAsInSource});
}

ModelSpec qwen3Spec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.attention.qk_norm = QkNorm::kPerHead;
  return modelSpec(config, layer);
}

std::vector<FieldValues> qwen3Fields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  fields.push_back({"attn_bias", {true}});
  fields.push_back({"qk_layernorm", {true}});
  return fields;
}
}  // namespace

Architecture qwen3Architecture() {
  return {.name = "Qwen3ForCausalLM",
          .configFromHuggingFace = qwen3Config,
          .weightTable = qwen3Table,
          .modelSpec = qwen3Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = qwen3Fields(),
          .models = {"Qwen3 (dense)"},
          .structure = "Llama with norms of query and key heads, explicit head size"};
}

}  // namespace chorus
