// Reads an adapter module by module and makes all checks that do not need the base model.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/tensor_file.h"
#include "lora/peft_config.h"
#include "lora/peft_keys.h"

namespace chorus {

// One adapted linear: y = W x + scale * B (A x). With DoRA, each output is multiplied by its magnitude and divided by
// the row's norm.
struct PeftModule {
  std::string name;                         // in the base model: "model.layers.0.self_attn.q_proj"
  std::string key_a, key_b, key_magnitude;  // tensors of the file; no key_magnitude without DoRA
  AdapterForm form = AdapterForm::kPeft;    // of the tensors in the file
  TensorView a;                             // [rank, in], finite
  TensorView b;                             // [out, rank], finite
  TensorView magnitude;                     // [out], [out, 1] or [1, out], finite; no bytes without DoRA
  float scale = 1.0f;

  int64_t rank() const { return a.shape[0]; }
  int64_t in() const { return a.shape[1]; }
  int64_t out() const { return b.shape[0]; }
  bool hasMagnitude() const { return !key_magnitude.empty(); }
  // The name that a PEFT file has for the tensor of the file, key_a, key_b or key_magnitude.
  std::string peftKey(const std::string& key) const;
};

struct PeftModules {
  std::string source;         // path of the weights, for error lines
  std::string config_source;  // path of adapter_config.json; empty for a NeMo adapter
  OrderedJson config;         // adapter_config.json in PEFT's form; null for a NeMo adapter
  bool uses_dora = false;
  bool is_normalised = false;          // magnitudes are already divided by the norms (dora_normalize.h)
  std::shared_ptr<const void> memory;  // owner of the views
  // Sorted by each module's first tensor: by its position in a PyTorch file, or by its name in a safetensors file.
  std::vector<PeftModule> modules;
};

// Reads LoRA, rsLoRA and DoRA of linears, as PEFT saves them, as the DoRA authors' code does (weight_m_wdecomp), or
// mlx-lm. torchtune's own names are refused, because the order of their rows depends on the base model.
// Everything else that an adapter may hold (embeddings, whole modules, biases, rows of tokens, parameters that are not
// linears) is refused, with its field or tensor in the message. A tensor whose shape or rank contradicts the config or
// the other tensors of its module is refused, too. Throws Error with one line.
PeftModules readPeftModules(const std::filesystem::path& dir);

// Reads a NeMo adapter (lora/nemo_reader.h): a directory with one .nemo archive, or the archive. The modules have names
// of linears that loraPlaceOf() knows; the heads' sizes, on which the order of rows depends, are those of the adapter's
// own config. Throws Error with one line.
PeftModules readNemoModulesOf(const std::filesystem::path& path);

}  // namespace chorus
