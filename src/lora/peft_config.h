// Reads adapter_config.json: PEFT's, mlx-lm's and the DoRA authors' (adapter_config_forms.h). Every field is used, has
// no effect here, or is refused by name unless it is at its default (peft_fields.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "lora/adapter_config_forms.h"
#include "lora/module_choice.h"
#include "lora/module_pattern.h"

namespace chorus {

// A larger adapter_config.json is refused before it is read.
inline constexpr size_t kMaxPeftConfigBytes = size_t{1} << 20;

// The only field that is not PEFT's own: true when the magnitudes of a DoRA adapter are already divided by their row
// norms, as convert/dora_normalize.h writes them. PEFT ignores the field with a warning and divides again.
inline constexpr const char* kNormalisedField = "magnitude_is_normalised";

// The biases of the base model that the adapter replaces.
enum class PeftBias { kNone, kAll, kLoraOnly };

// trainable_token_indices of one module, in the order of the rows of the module's tensor.
struct PeftTokens {
  std::optional<std::string> module;  // full name or its end; nullopt: the input embedding, whatever its name
  std::vector<int64_t> tokens;
};

struct PeftConfig {
  int64_t r = 0;
  double lora_alpha = 0;
  bool use_rslora = false;
  bool use_dora = false;
  bool magnitude_is_normalised = false;                         // kNormalisedField
  std::vector<std::pair<ModulePattern, int64_t>> rank_pattern;  // the first match applies
  std::vector<std::pair<ModulePattern, double>> alpha_pattern;
  ModuleChoice modules;
  std::shared_ptr<PatternWork> work;  // budget of the patterns
  PeftBias bias = PeftBias::kNone;
  bool lora_bias = false;
  bool ensure_weight_tying = false;
  std::vector<PeftTokens> trainable_tokens;
  std::optional<MlxConfig> mlx;  // set if mlx-lm wrote the configuration
  Json peft;                     // the configuration in PEFT's form, without kNormalisedField

  // Throws Error that names source and field.
  static PeftConfig parse(std::string_view text, std::string_view source);

  // Rank and scale of a module. `module` is its name in the base model, e.g. "model.layers.0.self_attn.q_proj", or for
  // a target_parameters entry the parameter's name, e.g. "model.layers.0.self_attn.q_proj.weight". `spelling` is
  // another name of it; a pattern may match either. Both throw Error(kInvalidArgument) when the patterns have exceeded
  // `work`, their budget for all names together.
  int64_t rankOf(std::string_view module, std::string_view spelling = {}) const;
  float scaleOf(std::string_view module, std::string_view spelling = {}) const;
};

}  // namespace chorus
