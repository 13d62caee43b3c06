// A PEFT directory module by module, read and checked as far as that goes without its base model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tensor_file.h"
#include "lora/peft_config.h"

namespace chorus {

// One adapted linear: y = W x + scale * B (A x), with DoRA each output times its magnitude over the row's norm.
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
  bool is_normalised = false;  // magnitudes are divided by the norms already (dora_normalize.h)
  TensorFile weights;          // keeps the views alive
  // In the order of PyTorch's file, or of the sorted names of a safetensors file, by each module's first tensor.
  std::vector<PeftModule> modules;
};

// LoRA, rsLoRA and DoRA of linears, DoRA as PEFT or as its authors' code saved it (weight_m_wdecomp). Everything else
// that an adapter may hold (embeddings, whole modules, biases, rows of tokens, parameters that are no linear) is
// refused by its field or tensor; so is a tensor of another shape or rank than its fellows and the config say. Throws
// Error with one line.
PeftModules readPeftModules(const std::filesystem::path& dir);

}  // namespace chorus
