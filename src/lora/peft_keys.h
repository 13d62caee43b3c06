// Parses the names of tensors in PEFT's adapter files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

// Splits "model.layers.3.mlp.up_proj", with or without "model.", into layer 3 and "mlp.up_proj". nullopt outside
// layers.
struct LayerModule {
  int32_t layer = 0;
  std::string name;
};
std::optional<LayerModule> layerModule(std::string_view module);

}  // namespace chorus
