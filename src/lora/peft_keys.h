// Parses the names of tensors in PEFT's adapter files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/weight_table.h"

namespace chorus {

enum class PeftPart {
  kA,
  kB,
  kBias,  // bias of lora_B
  kMagnitude,
  kEmbeddingA,  // A of an embedding layer: [rank, tokens]
  kEmbeddingB,  // B of an embedding layer: [hidden, rank]
  kTokens,      // trainable_tokens_delta
  kBase,        // a tensor of the base model, saved with the adapter
  kCopy,        // not used: training state, or a tensor that the file also has under its own name
  kBlockCopy,   // a weight of a saved block under its wrapper's name; `module` is the weight's own module
};

struct PeftKey {
  std::string module;  // name in the base model: "model.layers.0.self_attn.q_proj"
  PeftPart part = PeftPart::kA;
  // Set only for kBase:
  std::string tensor;    // "weight" or "bias"
  bool wrapped = false;  // the module also has an adapter around it
};

// PEFT's prefix and the adapter's name "default" may be present or absent. nullopt for a name that no tensor of a PEFT
// file has.
std::optional<PeftKey> parsePeftKey(std::string_view name);

// The name of the layers in Hugging Face's files: "model.layers." if the sources of the table are named
// "model.layers.{layer}.mlp.up_proj.weight" and so on.
std::string layersName(const WeightTable& table);

// Splits "model.layers.3.mlp.up_proj" into layer 3 and "mlp.up_proj". layers: layersName(); the module may lack its
// first component, the model's own name. nullopt outside layers.
struct LayerModule {
  int32_t layer = 0;
  std::string name;
};
std::optional<LayerModule> layerModule(std::string_view module, std::string_view layers);

// Whether a module or tensor has this name, with or without the model's own name ("model.", "transformer.") before it.
bool hasName(std::string_view module, std::string_view name);

}  // namespace chorus
