#include "models/phi3.h"

#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

ModelConfig phi3Config(const Json& json, std::string_view source) {
  SourceKeys keys = {.used = decoderKeys(),
                     .inert = {"embd_pdrop", "full_attn_mod", "interpolate_factor"},
                     .only_at_default = {{"attention_bias", false}, {"mlp_bias", false}, {"lm_head_bias", false}}};
  keys.used.insert(keys.used.end(), {"partial_rotary_factor"});
  addWindowKeys(keys);
  checkSourceKeys(json, keys, source);
  ModelConfig config = readDecoderConfig(json, source);
  config.architecture = "Phi3ForCausalLM";
  // transformers' values for a config without these keys.
  config.norm_epsilon = jsonGetOr(json, "rms_norm_eps", 1e-5, source);
  config.max_position_embeddings = jsonGetOr<int64_t>(json, "max_position_embeddings", 4096, source);
  config.position_embedding_type = PositionEmbedding::kRopeGptNeox;
  readRotary(json, source, PartialRotary::kRead, config);
  config.finalize(source);
  readSlidingWindow(json, source, {}, config);
  return config;
}

std::vector<FieldValues> phi3Fields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  return fields;
}

WeightTable phi3Table(const ModelConfig& config) { return llamaTable(config, {.fused_sources = true}); }
}  // namespace

Architecture phi3Architecture() {
  return {
      .name = "Phi3ForCausalLM",
      .configFromHuggingFace = phi3Config,
      .weightTable = phi3Table,
      .modelSpec = llamaSpec,
      .ignored_sources = llamaIgnoredSources(),
      .fields = phi3Fields(),
      .models = {"Phi-3", "Phi-4"},
      .structure = "Llama with fused qkv and gate_up projections, partial RoPE, a sliding window; longrope is refused"};
}

}  // namespace chorus
