#include "models/phi3.h"

#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

// Adds transformers' values of missing keys. It reads the scaling types "su" and "yarn" of older files as longrope.
Json withDefaultsOfPhi3(const Json& given) {
  Json json = withDefaults(
      given, {{"rms_norm_eps", 1e-5}, {"max_position_embeddings", 4096}, {"original_max_position_embeddings", 4096}});
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    if (!json.contains(object) || !json[object].is_object()) continue;
    for (const char* key : {"rope_type", "type"}) {
      if (!json[object].contains(key)) continue;
      if (Json& type = json[object][key]; type == "su" || type == "yarn") type = "longrope";
    }
  }
  return json;
}

ModelConfig phi3Config(const Json& given, std::string_view source) {
  SourceKeys keys = {.used = decoderKeys(),
                     .inert = {"embd_pdrop", "full_attn_mod", "interpolate_factor"},
                     .only_at_default = {{"attention_bias", false}, {"mlp_bias", false}, {"lm_head_bias", false}}};
  keys.used.insert(keys.used.end(), {"partial_rotary_factor"});
  addUniformWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaultsOfPhi3(given);
  ModelConfig config = readDecoderConfig(json, source);
  config.architecture = "Phi3ForCausalLM";
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRead, config);
  config.finalize(source);
  readUniformWindow(json, source, std::nullopt, config);
  return config;
}

std::vector<FieldValues> phi3Fields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  return fields;
}

WeightTable phi3Table(const ModelConfig& config) {
  return llamaTable(config, {.fused_sources = true, .torchtune_rows = TorchtuneRows::kAsInSource});
}
}  // namespace

Architecture phi3Architecture() {
  return {.name = "Phi3ForCausalLM",
          .configFromHuggingFace = phi3Config,
          .weightTable = phi3Table,
          .modelSpec = llamaSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = phi3Fields(),
          .models = {"Phi-3", "Phi-4", "Phi-4-mini"},
          .structure = "Llama with fused qkv and gate_up projections, partial RoPE, longrope, a sliding window"};
}

}  // namespace chorus
