// Parses the names of tensors in adapter files: PEFT's, and those that other tools write for the same tensors.
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
  kSaved,       // the same under the name of modules_to_save; PEFT's files also have it as kBase
  kLeftOut,     // not used: training state, the base's own value, or a tensor that the file also has under its own name
  kBlockCopy,   // a weight of a saved block under its wrapper's name; `module` is the weight's own module
};

// The form in which a tool stores A, B and the magnitude of a linear; it is known from the name of the tensor.
enum class AdapterForm {
  kPeft,  // A [rank, in], B [out, rank]
  kMlx,   // mlx-lm: A [in, rank], B [rank, out]; of all experts of a linear A [experts, rank, in], B [experts, out,
          // rank]
  kTorchtune,  // PEFT's shapes; the rows of q and k have another order in some models (adapter_values.h)
};

struct PeftKey {
  std::string module;  // name in the trained model: "model.layers.0.self_attn.q_proj"
  PeftPart part = PeftPart::kA;
  AdapterForm form = AdapterForm::kPeft;
  // Set only for kBase and kSaved:
  std::string tensor;    // "weight" or "bias"
  bool wrapped = false;  // the module also has an adapter around it
};

// The name without PEFT's prefix and the names of wrappers (see parsePeftKey): that of a tensor in the trained model.
std::string nameInModel(std::string_view name);

// Names may have PEFT's prefix, the prefixes of wrappers that training code puts around a model (FSDP, DeepSpeed,
// torch.compile, gradient checkpointing), and the adapter's name; all of these are removed. nullopt for a name that no
// tensor of an adapter has.
std::optional<PeftKey> parsePeftKey(std::string_view name);

// The name without the names of models that contain each other: "layers.0.mlp" for "model.layers.0.mlp",
// "language_model.model.layers.0.mlp" and "model.language_model.layers.0.mlp". Models that contain a text model name it
// in these ways, and a text model may have been trained alone.
std::string_view withoutModelNames(std::string_view name);

// The name of the layers in Hugging Face's files: "model.layers." if the sources of the table are named
// "model.layers.{layer}.mlp.up_proj.weight" and so on.
std::string layersName(const WeightTable& table);

// Splits "model.layers.3.mlp.up_proj" into layer 3 and "mlp.up_proj". layers: layersName(); both names are compared
// withoutModelNames(), and the list of layers may have the name that another tool gives it ("h" for "layers"). nullopt
// outside layers.
struct LayerModule {
  int32_t layer = 0;
  std::string name;
};
std::optional<LayerModule> layerModule(std::string_view module, std::string_view layers);

// Whether a module or tensor has this name, compared withoutModelNames().
bool hasName(std::string_view module, std::string_view name);

}  // namespace chorus
