// Reads a PEFT directory module by module and makes all checks that do not need the base model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tensor_file.h"
#include "lora/peft_config.h"

namespace chorus {

// One adapted linear: y = W x + scale * B (A x). With DoRA, each output is multiplied by its magnitude and divided by
// the row's norm.
struct PeftModule {
  std::string name;                         // in the base model: "model.layers.0.self_attn.q_proj"
  std::string key_a, key_b, key_magnitude;  // in the file; no key_magnitude without DoRA
  const TensorView* a = nullptr;            // [rank, in], finite
  const TensorView* b = nullptr;            // [out, rank], finite
  const TensorView* magnitude = nullptr;    // [out], [out, 1] or [1, out], finite; null without DoRA
  float scale = 1.0f;

  int64_t rank() const { return a->shape[0]; }
  int64_t in() const { return a->shape[1]; }
  int64_t out() const { return b->shape[0]; }
};

struct PeftModules {
  OrderedJson config;  // adapter_config.json
  bool uses_dora = false;
  bool is_normalised = false;  // magnitudes are already divided by the norms (dora_normalize.h)
  TensorFile weights;          // keeps the views alive
  // Sorted by each module's first tensor: by its position in a PyTorch file, or by its name in a safetensors file.
  std::vector<PeftModule> modules;
};

// Reads LoRA, rsLoRA and DoRA of linears; DoRA as PEFT saves it or as its authors' code does (weight_m_wdecomp).
// Everything else that an adapter may hold (embeddings, whole modules, biases, rows of tokens, parameters that are not
// linears) is refused, with its field or tensor in the message. A tensor whose shape or rank contradicts the config or
// the other tensors of its module is refused, too. Throws Error with one line.
PeftModules readPeftModules(const std::filesystem::path& dir);

}  // namespace chorus
