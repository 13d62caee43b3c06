#include "models/ministral3.h"

#include "base/error.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

// A field of a checkpoint, and a key in the source's object of the RoPE scaling: QueryScaling::beta. Its length is
// original_max_position_embeddings.
constexpr const char* kBeta = "llama_4_scaling_beta";

QueryScaling queryScaling(const ModelConfig& config, std::string_view source) {
  const auto beta = jsonGetOr(config.extra, kBeta, 0.0, source);
  if (beta == 0.0) return {};
  if (!isFactor(beta)) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' must be 0 or from {:g} to {:g}", source, kBeta, kLeastFactor,
         kGreatestFactor);
  }
  const double length = config.rotary_scaling.original_max_position_embeddings;
  if (length <= 0.0) {
    fail(ErrorCode::kUnsupported, "{}: '{}' is supported only with a RoPE scaling that has an original length: yarn",
         source, kBeta);
  }
  return {.beta = beta, .length = length};
}

// transformers' values for a config without both objects.
Json withRotary(const Json& given) {
  const auto has = [&](const char* key) { return given.contains(key) && !given.at(key).is_null(); };
  Json json = withDefaults(
      given,
      {{"head_dim", 128}, {"num_key_value_heads", 8}, {"max_position_embeddings", 262144}, {"rms_norm_eps", 1e-5}});
  if (has("rope_parameters") || has("rope_scaling")) return json;
  json["rope_parameters"] = {
      {"rope_type", "yarn"}, {"rope_theta", 1e6},     {"factor", 16.0}, {"original_max_position_embeddings", 16384},
      {"mscale", 1.0},       {"mscale_all_dim", 1.0}, {kBeta, 0.1}};
  return json;
}

ModelConfig ministral3Config(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  addUniformWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withRotary(given);
  ModelConfig config = readDecoderConfig(json, source);
  config.architecture = "Ministral3ForCausalLM";
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRefused, config, {kBeta, "max_position_embeddings"});
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    const Json parameters = json.value(object, Json());
    if (parameters.is_object() && parameters.contains(kBeta)) config.extra[kBeta] = parameters.at(kBeta);
  }
  config.finalize(source);
  queryScaling(config, source);
  readUniformWindow(json, source, std::nullopt, config);
  return config;
}

WeightTable ministral3Table(const ModelConfig& config) { return llamaTable(config, {}); }

ModelSpec ministral3Spec(const ModelConfig& config) {
  LayerSpec layer = layerSpec(config);
  layer.attention.query_scaling = queryScaling(config, "config.json");
  return modelSpec(config, layer);
}

std::vector<FieldValues> ministral3Fields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  fields.push_back({.field = kBeta, .range = FieldRange::kFactor});
  return fields;
}
}  // namespace

Architecture ministral3Architecture() {
  return {.name = "Ministral3ForCausalLM",
          .configFromHuggingFace = ministral3Config,
          .weightTable = ministral3Table,
          .modelSpec = ministral3Spec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = ministral3Fields(),
          .models = {"Ministral 3 (text)"},
          .structure = "Mistral with queries that grow with their position"};
}

}  // namespace chorus
