#include "models/granite.h"

#include <cmath>

#include "base/error.h"
#include "models/llama_blocks.h"

namespace chorus {
namespace {

// A checkpoint has TensorRT-LLM's fields of these names. Two of them differ from Hugging Face's keys:
//   attention_multiplier     Hugging Face's times sqrt(head_size): 1 is the usual scale of scores, 1 / sqrt(head_size)
//   output_multiplier_scale  1 / logits_scaling
constexpr const char* kAttentionMultiplier = "attention_multiplier";
constexpr const char* kMultipliers[] = {"embedding_multiplier", kAttentionMultiplier, "residual_multiplier"};
constexpr const char* kLogitsMultiplier = "output_multiplier_scale";

double multiplierIn(const Json& json, const char* key, std::string_view source) {
  const auto value = jsonGetOr<double>(json, key, 1.0, source);
  if (isFactor(value)) return value;
  fail(ErrorCode::kInvalidArgument, "{}: '{}' must be from {:g} to {:g}", source, key, kLeastFactor, kGreatestFactor);
}

ModelConfig graniteConfig(const Json& json, std::string_view source) {
  SourceKeys keys = llamaKeys();
  addGraniteKeys(keys);
  keys.used.push_back("mlp_bias");
  checkSourceKeys(json, keys, source);
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "GraniteForCausalLM";
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.mlp_bias = jsonGetOr(json, "mlp_bias", false, source);
  config.finalize(source);
  readGraniteMultipliers(json, source, config);
  return config;
}

WeightTable graniteTable(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias, .dense_bias = c.attn_bias, .mlp_bias = c.mlp_bias});
}

ModelSpec graniteSpec(const ModelConfig& config) {
  ModelSpec spec = llamaSpec(config);
  applyGraniteMultipliers(config, spec);
  return spec;
}

std::vector<FieldValues> graniteFields() {
  std::vector<FieldValues> fields = llamaFields();
  fields.push_back({"attn_bias", {true}});
  fields.push_back({"mlp_bias", {true}});
  addGraniteFields(fields);
  return fields;
}
}  // namespace

void addGraniteKeys(SourceKeys& keys) {
  keys.used.insert(keys.used.end(), {"attention_bias", "logits_scaling"});
  keys.used.insert(keys.used.end(), std::begin(kMultipliers), std::end(kMultipliers));
}

void readGraniteMultipliers(const Json& json, std::string_view source, ModelConfig& config) {
  for (const char* key : kMultipliers) config.extra[key] = multiplierIn(json, key, source);
  config.extra[kLogitsMultiplier] = 1.0 / multiplierIn(json, "logits_scaling", source);
  config.extra[kAttentionMultiplier] =
      multiplierIn(json, kAttentionMultiplier, source) * std::sqrt(static_cast<double>(config.head_size));
}

void applyGraniteMultipliers(const ModelConfig& config, ModelSpec& spec) {
  const auto multiplier = [&](const char* field) {
    return static_cast<float>(jsonGetOr<double>(config.extra, field, 1.0, "config.json"));
  };
  for (LayerSpec& layer : spec.layers) {
    layer.attention.scale *= multiplier(kAttentionMultiplier);
    layer.residual_scale = multiplier("residual_multiplier");
  }
  spec.embedding.scale = multiplier("embedding_multiplier");
  spec.head.scale = multiplier(kLogitsMultiplier);
}

void addGraniteFields(std::vector<FieldValues>& fields) {
  for (const char* key : kMultipliers) fields.push_back({.field = key, .range = FieldRange::kFactor});
  fields.push_back({.field = kLogitsMultiplier, .range = FieldRange::kFactor});
}

Architecture graniteArchitecture() {
  return {.name = "GraniteForCausalLM",
          .configFromHuggingFace = graniteConfig,
          .weightTable = graniteTable,
          .modelSpec = graniteSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = graniteFields(),
          .models = {"Granite 3 (dense)"},
          .structure = "Llama with multipliers of embedding, scores, residuals and logits"};
}

}  // namespace chorus
