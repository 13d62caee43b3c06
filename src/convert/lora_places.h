// Finds TensorRT-LLM's module id and layer for an adapted module of a Hugging Face model from the module's name alone,
// without the model. Follows the tables of TensorRT-LLM's LoRA converter and LoraManager.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus {

struct LoraPlace {
  int32_t module_id = 0;  // lora/module_ids.h
  int32_t layer = 0;
  int32_t expert = -1;  // index in a mixture of experts, or -1; all experts of a layer share a row of the tensors
};

// module: its name in the base model, such as "model.layers.3.self_attn.q_proj". Returns nullopt for a module without
// an id.
std::optional<LoraPlace> loraPlaceOf(std::string_view module);

}  // namespace chorus
