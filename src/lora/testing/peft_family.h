// Fixture for adapters that have a LoRA module on a q_proj and, in each test, values of other kinds.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "lora/testing/peft_directory.h"

namespace chorus {

class PeftFamilyTest : public PeftDirectoryTest {
 protected:
  inline static const std::string kBase = "base_model.model.";
  inline static const std::string kQ = kBase + "model.layers.0.self_attn.q_proj.";
  inline static const std::string kEmbedding = kBase + "model.embed_tokens.";
  inline static const std::string kHead = kBase + "lm_head.";
  inline static const WeightSlot kQkvBias = slotOf(LinearId::kQkv).bias();

  PeftFamilyTest() {
    config_ = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", {"q_proj"}}};
    put(kQ + "lora_A.weight", {2, 4});
    put(kQ + "lora_B.weight", {4, 2});
  }

  const AdapterModule& moduleOf(const Adapter& adapter, int32_t id) {
    for (const AdapterModule& module : adapter.modules) {
      if (module.module_id == id) return module;
    }
    throw std::runtime_error("no module " + std::to_string(id));
  }
  // The values of the adapter's weights for a table row, in order.
  std::vector<float> weightsOf(const Adapter& adapter, const WeightSlot& slot) {
    std::vector<float> values;
    for (const AdapterWeight& weight : adapter.weights) {
      if (weight.slot != slot) continue;
      for (int64_t i = 0; i < weight.rows * weight.cols; ++i) {
        values.push_back(loadAsFloat(weight.data, weight.dtype, static_cast<size_t>(i)));
      }
    }
    return values;
  }
};

}  // namespace chorus
