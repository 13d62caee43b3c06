#include "models/olmo2.h"

#include "models/llama_blocks.h"

namespace chorus {
namespace {

ModelConfig olmo2Config(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.push_back("attention_bias");
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(given, {{"rms_norm_eps", 1e-5}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "Olmo2ForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.qk_layernorm = true;
  config.finalize(source);
  return config;
}

WeightTable olmo2Table(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias,
                        .dense_bias = c.attn_bias,
                        .qk_norm = QkNorm::kWholeRow,
                        .residual = ResidualForm::kPost});
}

ModelSpec olmo2Spec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.attention.qk_norm = QkNorm::kWholeRow;
  layer.residual = ResidualForm::kPost;
  return modelSpec(config, layer);
}

std::vector<FieldValues> olmo2Fields() {
  std::vector<FieldValues> fields = llamaFields();
  fields.push_back({"attn_bias", {true}});
  fields.push_back({"qk_layernorm", {true}});
  return fields;
}
}  // namespace

Architecture olmo2Architecture() {
  return {
      .name = "Olmo2ForCausalLM",
      .configFromHuggingFace = olmo2Config,
      .weightTable = olmo2Table,
      .modelSpec = olmo2Spec,
      .ignored_sources = llamaIgnoredSources(),
      .fields = olmo2Fields(),
      .models = {"OLMo 2"},
      .structure =
          "Llama with norms after the blocks instead of before them, and one norm of all query or key heads together"};
}

}  // namespace chorus
