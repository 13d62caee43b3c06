// Where TensorRT-LLM keeps an adapted module of a Hugging Face model, by the module's name alone: what its LoRA
// converter and LoraManager map, for use without the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus {

struct LoraPlace {
  int32_t module_id = 0;  // lora/module_ids.h
  int32_t layer = 0;
  int32_t expert = -1;  // of a mixture of experts: all experts of a layer are one row of the tensors
};

// module: its name in the base model, "model.layers.3.self_attn.q_proj". nullopt for a module that has no id.
std::optional<LoraPlace> loraPlaceOf(std::string_view module);

}  // namespace chorus
