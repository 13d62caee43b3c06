// Mixtures of experts in configs, weight tables and structures.
//
// A checkpoint has
//   moe {num_experts, top_k, normalization_mode}  TensorRT-LLM's object, or its older flat keys moe_num_experts, ...
//   moe_intermediate_size                         of each expert; without it, intermediate_size
//   moe_shared_expert_intermediate_size           of the shared expert; 0 or missing: the model has none
//   decoder_sparse_step, mlp_only_layers          the layers with experts, as in transformers' Qwen models
// Layer i has experts if decoder_sparse_step divides i + 1 and mlp_only_layers does not list i. Without these keys all
// layers have them.
#pragma once

#include <string>
#include <vector>

#include "models/architecture.h"
#include "models/source_config.h"

namespace chorus {

struct ExpertsConfig {
  int32_t experts = 0;
  int32_t top_k = 0;
  bool normalised = true;    // normalization_mode 1 (RENORMALIZE); false: 0 (NONE)
  int64_t size = 0;          // intermediate size of an expert
  int64_t shared_size = 0;   // 0: no shared expert
  std::vector<bool> layers;  // whether each layer has experts
};
// Throws Error(kInvalidArgument) or Error(kUnsupported), naming the field, if a value is malformed or out of range.
ExpertsConfig expertsConfig(const ModelConfig& config);
// The fields of a checkpoint that expertsConfig() reads, and the values of hidden_act that experts support.
void addExpertsFields(std::vector<FieldValues>& fields);

// Writes the fields of a checkpoint. Throws Error that names source if the number of experts or of a row's experts is
// out of range, or the config's hidden_act is not silu.
void setExperts(const ExpertsConfig& experts, std::string_view source, ModelConfig& config);
// Reads the keys that Qwen's configs with experts share (num_experts or num_local_experts, num_experts_per_tok,
// norm_topk_prob, moe_intermediate_size, decoder_sparse_step, mlp_only_layers) into the fields of a finalised config.
// shared: also shared_expert_intermediate_size. Throws Error that names the key.
void readQwenExperts(const Json& json, std::string_view source, bool shared, ModelConfig& config);
void addQwenExpertsKeys(bool shared, SourceKeys& keys);

// The names of the tensors of experts in a source, below the name of their layer.
struct ExpertsForm {
  // Names of the MLP in a layer, one for each spelling of the files. Each has the router and the experts, as separate
  // linears, such as mlp.experts.3.gate_proj, or together as parameters of all experts.
  std::vector<std::string> blocks = {"mlp"};
  std::vector<std::string> routers = {"gate"};  // in a block, one for each spelling
  bool has_separate = true;
  std::string activated = "gate_proj", other = "up_proj", output = "down_proj";  // names of one expert's linears
  // Parameters of all experts in a block: the input projections with the activated half first, and the output
  // projections.
  struct Stacked {
    std::string input, output;
  };
  std::vector<Stacked> stacked = {{"experts.gate_up_proj", "experts.down_proj"}};
  // The shared expert, if the config has one: its input projection as two linears, or as one with the activated half
  // first. An empty name is of a linear that it does not have.
  struct Shared {
    std::string activated = "mlp.shared_expert.gate_proj", other = "mlp.shared_expert.up_proj", input = {};
    std::string output = "mlp.shared_expert.down_proj", gate = "mlp.shared_expert_gate";
  };
  Shared shared = {};
};
// The rows of the layers with experts; empty if there are none.
WeightTable expertsRows(const ModelConfig& config, const ExpertsForm& form);
// The ids of the other layers.
std::vector<int32_t> denseLayers(const ModelConfig& config);

// The layer of the config, with dense MLPs.
LayerSpec denseLayerSpec(const ModelConfig& config);
// Gives the layers with experts their structure. shared_gate: whether the shared expert, if there is one, has a gate.
void addExperts(const ModelConfig& config, ModelSpec& spec, bool shared_gate = true);

}  // namespace chorus
