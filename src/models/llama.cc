#include "models/llama.h"

#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

ModelConfig llamaConfig(const Json& json, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.insert(keys.used.end(), {"attention_bias", "mlp_bias"});
  keys.only_at_default.emplace_back("pretraining_tp", 1);
  checkSourceKeys(json, keys, source);
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "LlamaForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.mlp_bias = jsonGetOr(json, "mlp_bias", false, source);
  config.finalize(source);
  return config;
}

ModelConfig mistralConfig(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  addUniformWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"num_key_value_heads", 8}, {"max_position_embeddings", 131072}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "MistralForCausalLM";
  // transformers gives a Mistral config that does not mention the key a window of 4096; files of models without one
  // say null.
  config.finalize(source);
  readUniformWindow(json, source, 4096, config);
  return config;
}

WeightTable tableWithBiases(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias,
                        .dense_bias = c.attn_bias,
                        .mlp_bias = c.mlp_bias,
                        .torchtune_rows = TorchtuneRows::kPairs});
}

std::vector<FieldValues> fieldsWithBiases() {
  std::vector<FieldValues> fields = llamaFields();
  fields.push_back({"attn_bias", {true}});
  fields.push_back({"mlp_bias", {true}});
  return fields;
}

std::vector<FieldValues> mistralFields() {
  std::vector<FieldValues> fields = fieldsWithBiases();
  addWindowFields(fields);
  return fields;
}
}  // namespace

Architecture llamaArchitecture() {
  return {.name = "LlamaForCausalLM",
          .configFromHuggingFace = llamaConfig,
          .weightTable = tableWithBiases,
          .modelSpec = llamaSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = fieldsWithBiases(),
          .aliases = {"LLaMAForCausalLM"},
          .models = {"Llama 1, 2, 3", "models with Llama's layers"},
          .structure =
              "RMS norms, gated MLP, grouped-query attention, optional biases; linear, llama3, YaRN and longrope RoPE "
              "scaling"};
}

Architecture mistralArchitecture() {
  return {.name = "MistralForCausalLM",
          .configFromHuggingFace = mistralConfig,
          .weightTable = tableWithBiases,
          .modelSpec = llamaSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = mistralFields(),
          .models = {"Mistral"},
          .structure = "Llama with a sliding window"};
}

}  // namespace chorus
