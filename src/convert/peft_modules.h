// Reads an adapter module by module and makes all checks that do not need the base model.
#pragma once

#include <filesystem>
#include <memory>
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
  std::string key_a, key_b, key_magnitude;  // tensors of the file; no key_magnitude without DoRA
  const TensorView* a = nullptr;            // [rank, in], finite
  const TensorView* b = nullptr;            // [out, rank], finite
  const TensorView* magnitude = nullptr;    // [out], [out, 1] or [1, out], finite; null without DoRA
  float scale = 1.0f;

  int64_t rank() const { return a->shape[0]; }
  int64_t in() const { return a->shape[1]; }
  int64_t out() const { return b->shape[0]; }
};

struct PeftModules {
  std::string source;  // path of the weights, for error lines
  OrderedJson config;  // adapter_config.json; null for a NeMo adapter
  bool uses_dora = false;
  bool is_normalised = false;          // magnitudes are already divided by the norms (dora_normalize.h)
  std::shared_ptr<const void> memory;  // owner of the views
  // Sorted by each module's first tensor: by its position in a PyTorch file, or by its name in a safetensors file.
  std::vector<PeftModule> modules;
};

// Reads LoRA, rsLoRA and DoRA of linears; DoRA as PEFT saves it or as its authors' code does (weight_m_wdecomp).
// Everything else that an adapter may hold (embeddings, whole modules, biases, rows of tokens, parameters that are not
// linears) is refused, with its field or tensor in the message. A tensor whose shape or rank contradicts the config or
// the other tensors of its module is refused, too. Throws Error with one line.
PeftModules readPeftModules(const std::filesystem::path& dir);

// Reads a NeMo adapter (lora/nemo_reader.h): a directory with one .nemo archive, or the archive. The modules have names
// of linears that loraPlaceOf() knows; the heads' sizes, on which the order of rows depends, are those of the adapter's
// own config. Throws Error with one line.
PeftModules readNemoModulesOf(const std::filesystem::path& path);

}  // namespace chorus
