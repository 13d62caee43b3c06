// Which modules a PEFT configuration adapts: target_modules, exclude_modules, layers_to_transform and layers_pattern as
// check_target_module_exists of PEFT's tuners_utils reads them, target_parameters as _inject_parameters does,
// modules_to_save as _set_trainable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "lora/module_pattern.h"

namespace chorus {

// Names of modules: a list of whole names or their ends after a dot, or one regular expression for the whole name.
struct ModuleNames {
  std::vector<std::string> ends;
  std::optional<ModulePattern> pattern;

  bool empty() const { return ends.empty() && !pattern; }
  bool contain(std::string_view module) const;
};

class ModuleChoice {
 public:
  // Throws Error(kInvalidArgument) that names source and field, also for combinations that PEFT refuses. work must not
  // be null; whatever is asked later throws when it exceeds its limit.
  static ModuleChoice parse(const Json& config, std::string_view source, std::shared_ptr<PatternWork> work);

  // For a module by its name in the base model, "model.layers.0.self_attn.q_proj".
  bool includes(std::string_view module) const;
  // For a parameter, "model.layers.0.self_attn.q_proj.weight": it is adapted by itself, not by its module.
  bool includesParameter(std::string_view parameter) const;
  bool targetsParameters() const { return !parameters_.empty(); }
  // Whether the module, or one that it stands in, is saved whole.
  bool saves(std::string_view module) const;
  // Empty: any module.
  const ModuleNames& targets() const { return targets_; }

 private:
  bool includesLayerOf(std::string_view module) const;
  // Of one question about a name.
  void charge() const;

  std::shared_ptr<PatternWork> work_;  // null: nothing was parsed
  ModuleNames targets_;
  bool targets_any_ = false;
  std::vector<std::string> parameters_;  // whole names or their ends after a dot
  std::vector<std::string> saved_;       // ends of names, at a dot or not
  ModuleNames excluded_;
  std::vector<int64_t> layers_;  // empty: any layer
  std::vector<ModulePattern> layers_patterns_;
};

}  // namespace chorus
