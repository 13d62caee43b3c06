// adapter_config.json of PEFT: every field is used, changes nothing here, or is refused by name unless at its default
// (peft_fields.h).
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "lora/module_choice.h"
#include "lora/module_pattern.h"

namespace chorus {

// A larger adapter_config.json is refused unread.
inline constexpr size_t kMaxPeftConfigBytes = size_t{1} << 20;

struct PeftConfig {
  int64_t r = 0;
  double lora_alpha = 0;
  bool use_rslora = false;
  bool use_dora = false;
  std::vector<std::pair<ModulePattern, int64_t>> rank_pattern;  // the first that matches counts
  std::vector<std::pair<ModulePattern, double>> alpha_pattern;
  ModuleChoice modules;

  // Throws Error that names source and field.
  static PeftConfig parse(std::string_view text, std::string_view source);

  // For a module by its name in the base model, "model.layers.0.self_attn.q_proj".
  int64_t rankOf(std::string_view module) const;
  float scaleOf(std::string_view module) const;
};

}  // namespace chorus
