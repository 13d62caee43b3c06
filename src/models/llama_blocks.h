// Shared by the architectures with Llama's tensors and structure: a pre-norm decoder, grouped-query attention with
// rotary positions, and a gated MLP.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"
#include "models/source_config.h"

namespace chorus {

struct ExpertsForm;

// The keys that readLlamaConfig reads or refuses. An architecture adds its own ones.
SourceKeys llamaKeys();
// Reads sizes and rotary positions. The caller sets architecture and biases, and calls finalize.
ModelConfig readLlamaConfig(const Json& json, std::string_view source);

// The differences between the weight tables of these architectures.
struct LlamaForm {
  bool qkv_bias = false;
  bool dense_bias = false;
  bool mlp_bias = false;           // of all linears of the MLP
  QkNorm qk_norm = QkNorm::kNone;  // q_norm and k_norm
  bool fused_sources = false;  // one source tensor for q, k and v (qkv_proj), another for gate and up (gate_up_proj)
  // kPre, kSandwich, kPost or kParallelShared. In kSandwich and kPost, the MLP's norms are pre_ and
  // post_feedforward_layernorm.
  ResidualForm residual = ResidualForm::kPre;
  SourceTransform norms = {};                              // how the source keeps the weights of all norms
  const ExpertsForm* experts = nullptr;                    // of a model with experts (models/experts.h)
  TorchtuneRows torchtune_rows = TorchtuneRows::kUnknown;  // of q and k: those of the model's converter in torchtune
};
WeightTable llamaTable(const ModelConfig& config, const LlamaForm& form);
ModelSpec llamaSpec(const ModelConfig& config);

// Source tensors without weights: rotary frequencies in old files, which follow from the config, and lm_head.weight,
// which the table has unless the embeddings are tied; transformers then reads the embedding instead.
std::vector<std::string> llamaIgnoredSources();
// The structural fields that llamaTable and llamaSpec obey, without those of biases.
std::vector<FieldValues> llamaFields();

}  // namespace chorus
