// The names of tensors in PEFT's adapter files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorus {

enum class PeftPart {
  kA,
  kB,
  kBias,  // of lora_B
  kMagnitude,
  kEmbeddingA,  // of a table that is looked up: [rank, tokens]
  kEmbeddingB,  // [hidden, rank]
  kTokens,      // trainable_tokens_delta
  kBase,        // a tensor of the base model, saved along
  kCopy,        // no part of an answer: of training, or of a tensor that the file has under its own name too
  kBlockCopy,   // a weight of a saved block under its wrapper's name; module is the weight's own
};

struct PeftKey {
  std::string module;  // in the base model: "model.layers.0.self_attn.q_proj"
  PeftPart part = PeftPart::kA;
  // Of kBase:
  std::string tensor;    // "weight" or "bias"
  bool wrapped = false;  // of a module that has an adapter around it
};

// With PEFT's prefix or without it, with the adapter's name "default" or without it. nullopt for a name that no tensor
// of a PEFT file has.
std::optional<PeftKey> parsePeftKey(std::string_view name);

// "model.layers.3.mlp.up_proj", with or without "model.": layer 3 and "mlp.up_proj". nullopt outside layers.
struct LayerModule {
  int32_t layer = 0;
  std::string name;
};
std::optional<LayerModule> layerModule(std::string_view module);

}  // namespace chorus
