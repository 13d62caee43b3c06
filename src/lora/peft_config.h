// adapter_config.json of PEFT: every field is used, changes nothing here, or is refused by name unless at its default
// (peft_fields.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "lora/module_choice.h"
#include "lora/module_pattern.h"

namespace chorus {

// A larger adapter_config.json is refused unread.
inline constexpr size_t kMaxPeftConfigBytes = size_t{1} << 20;

// The one field that is not PEFT's: true where a DoRA adapter's magnitudes are divided by their row norms already, as
// convert/dora_normalize.h leaves them. PEFT, which would divide again, ignores it with a warning.
inline constexpr const char* kNormalisedField = "magnitude_is_normalised";

// Which of the base's biases an adapter brings along.
enum class PeftBias { kNone, kAll, kLoraOnly };

// trainable_token_indices of one module, in the order of the rows in its tensor.
struct PeftTokens {
  std::string module;  // its name or the end of it
  std::vector<int64_t> tokens;
};

struct PeftConfig {
  int64_t r = 0;
  double lora_alpha = 0;
  bool use_rslora = false;
  bool use_dora = false;
  bool magnitude_is_normalised = false;                         // kNormalisedField
  std::vector<std::pair<ModulePattern, int64_t>> rank_pattern;  // the first that matches counts
  std::vector<std::pair<ModulePattern, double>> alpha_pattern;
  ModuleChoice modules;
  std::shared_ptr<PatternWork> work;  // of the patterns
  PeftBias bias = PeftBias::kNone;
  bool lora_bias = false;
  bool ensure_weight_tying = false;
  std::vector<PeftTokens> trainable_tokens;

  // Throws Error that names source and field.
  static PeftConfig parse(std::string_view text, std::string_view source);

  // For a module by its name in the base model, "model.layers.0.self_attn.q_proj"; for a parameter that is adapted by
  // itself by that one's, "model.layers.0.self_attn.q_proj.weight". Throw Error(kInvalidArgument) when the patterns
  // cost too much for all names together.
  int64_t rankOf(std::string_view module) const;
  float scaleOf(std::string_view module) const;
};

}  // namespace chorus
