#include "models/granite_moe.h"

#include "models/experts.h"
#include "models/granite.h"
#include "models/llama_blocks.h"

namespace chorus {
namespace {

constexpr const char* kSharedMlpSize = "shared_intermediate_size";

// transformers 5 calls the parameters of all experts gate_up_proj and down_proj, but writes files with the names of
// earlier versions.
const ExpertsForm& graniteMoeForm() {
  static const ExpertsForm form = {
      .blocks = {"block_sparse_moe"},
      .routers = {"router.layer", "router"},
      .has_separate = false,
      .stacked = {{"input_linear.weight", "output_linear.weight"}, {"experts.gate_up_proj", "experts.down_proj"}},
      .shared = {.activated = "",
                 .other = "",
                 .input = "shared_mlp.input_linear",
                 .output = "shared_mlp.output_linear",
                 .gate = ""}};
  return form;
}

ModelConfig readGraniteMoe(const Json& json, std::string_view source, const char* architecture, int64_t shared_size) {
  ModelConfig config = readLlamaConfig(json, source);
  config.architecture = architecture;
  config.attn_bias = jsonGetOr(json, "attention_bias", false, source);
  config.finalize(source);
  readGraniteMultipliers(json, source, config);
  setExperts({.experts = jsonGetOr<int32_t>(json, "num_local_experts", 8, source),
              .top_k = jsonGetOr<int32_t>(json, "num_experts_per_tok", 2, source),
              .size = config.intermediate_size,
              .shared_size = shared_size},
             source, config);
  return config;
}

SourceKeys graniteMoeKeys() {
  SourceKeys keys = llamaKeys();
  addGraniteKeys(keys);
  keys.used.insert(keys.used.end(), {"num_local_experts", "num_experts_per_tok"});
  keys.inert = {"output_router_logits", "router_aux_loss_coef"};
  return keys;
}

ModelConfig graniteMoeConfig(const Json& json, std::string_view source) {
  checkSourceKeys(json, graniteMoeKeys(), source);
  return readGraniteMoe(json, source, "GraniteMoeForCausalLM", 0);
}

ModelConfig graniteMoeSharedConfig(const Json& json, std::string_view source) {
  SourceKeys keys = graniteMoeKeys();
  keys.used.push_back(kSharedMlpSize);
  checkSourceKeys(json, keys, source);
  // 0 or a missing key: the model has no shared expert.
  const bool none = json.value(kSharedMlpSize, Json(0)) == 0;
  return readGraniteMoe(json, source, "GraniteMoeSharedForCausalLM",
                        none ? 0 : optionalSize(json, kSharedMlpSize, source));
}

WeightTable graniteMoeTable(const ModelConfig& c) {
  return llamaTable(c, {.qkv_bias = c.attn_bias, .dense_bias = c.attn_bias, .experts = &graniteMoeForm()});
}

ModelSpec graniteMoeSpec(const ModelConfig& config) {
  ModelSpec spec = modelSpec(config, denseLayerSpec(config));
  applyGraniteMultipliers(config, spec);
  addExperts(config, spec, false);
  return spec;
}

std::vector<FieldValues> graniteMoeFields() {
  std::vector<FieldValues> fields = llamaFields();
  addExpertsFields(fields);
  addGraniteFields(fields);
  fields.push_back({"attn_bias", {true}});
  return fields;
}

Architecture architectureNamed(const char* name, ModelConfig (*config)(const Json&, std::string_view)) {
  return {.name = name,
          .configFromHuggingFace = config,
          .weightTable = graniteMoeTable,
          .modelSpec = graniteMoeSpec,
          .ignored_sources = llamaIgnoredSources(),
          .fields = graniteMoeFields()};
}
}  // namespace

Architecture graniteMoeArchitecture() {
  Architecture architecture = architectureNamed("GraniteMoeForCausalLM", graniteMoeConfig);
  architecture.models = {"Granite 3 (MoE)"};
  architecture.structure = "Granite with a mixture of experts";
  return architecture;
}

Architecture graniteMoeSharedArchitecture() {
  Architecture architecture = architectureNamed("GraniteMoeSharedForCausalLM", graniteMoeSharedConfig);
  architecture.models = {"Granite MoE with a shared expert"};
  architecture.structure = "Granite-MoE with an expert that takes every row";
  return architecture;
}

}  // namespace chorus
