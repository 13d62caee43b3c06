// What the architectures with Llama's tensors and structure have in common: a pre-norm decoder, grouped-query attention
// with rotary positions, and a gated MLP.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.h"
#include "models/source_config.h"

namespace chorus {

// The keys that readLlamaConfig reads or refuses. An architecture adds its own ones.
SourceKeys llamaKeys();
// Reads sizes and rotary positions. The caller sets architecture and biases, and calls finalize.
ModelConfig readLlamaConfig(const Json& json, std::string_view source);

// Throws Error(kUnsupported) that names 'sliding_window' if the window is below max_position_embeddings, so that some
// query would not see all of its context.
void refuseSlidingWindow(int64_t window, const ModelConfig& config, std::string_view source);

// Which linears of a layer have a bias.
struct LlamaBiases {
  bool qkv = false;
  bool dense = false;
  bool mlp = false;  // all linears of the MLP
};
WeightTable llamaTable(const ModelConfig& config, const LlamaBiases& biases);
ModelSpec llamaSpec(const ModelConfig& config);

// Source tensors without weights: rotary frequencies in old files, which follow from the config, and lm_head.weight,
// which the table has unless the embeddings are tied; transformers then reads the embedding instead.
std::vector<std::string> llamaIgnoredSources();
// The structural fields that llamaTable and llamaSpec obey, without those of biases.
std::vector<FieldValues> llamaFields();

}  // namespace chorus
