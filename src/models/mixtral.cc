#include "models/mixtral.h"

#include "models/experts.h"
#include "models/llama_blocks.h"
#include "models/sliding_window.h"

namespace chorus {
namespace {

// transformers 5 calls the MLP of a layer `mlp`, but writes files with the name of earlier versions.
const ExpertsForm& mixtralForm() {
  static const ExpertsForm form = {
      .blocks = {"block_sparse_moe", "mlp"}, .activated = "w1", .other = "w3", .output = "w2"};
  return form;
}

ModelConfig mixtralConfig(const Json& given, std::string_view source) {
  SourceKeys keys = llamaKeys();
  keys.used.insert(keys.used.end(), {"num_local_experts", "num_experts_per_tok"});
  keys.inert = {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"};
  addUniformWindowKeys(keys);
  checkSourceKeys(given, keys, source);
  const Json json = withDefaults(
      given,
      {{"num_key_value_heads", 8}, {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-5}, {"rope_theta", 1e6}});
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = "MixtralForCausalLM";
  config.finalize(source);
  readUniformWindow(json, source, std::nullopt, config);
  setExperts({.experts = jsonGetOr<int32_t>(json, "num_local_experts", 8, source),
              .top_k = jsonGetOr<int32_t>(json, "num_experts_per_tok", 2, source),
              .size = config.intermediate_size},
             source, config);
  return config;
}

WeightTable mixtralTable(const ModelConfig& c) { return llamaTable(c, {.experts = &mixtralForm()}); }

ModelSpec mixtralSpec(const ModelConfig& config) {
  ModelSpec spec = modelSpec(config, denseLayerSpec(config));
  addExperts(config, spec);
  return spec;
}

std::vector<FieldValues> mixtralFields() {
  std::vector<FieldValues> fields = llamaFields();
  addWindowFields(fields);
  addExpertsFields(fields);
  return fields;
}
}  // namespace

Architecture mixtralArchitecture() {
  return {.name = "MixtralForCausalLM",
          .configFromHuggingFace = mixtralConfig,
          .weightTable = mixtralTable,
          .modelSpec = mixtralSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = mixtralFields(),
          .models = {"Mixtral"},
          .structure = "Mistral with a mixture of experts in every layer"};
}

}  // namespace chorus
