// Decides which modules a PEFT configuration adapts. The rules are PEFT's: check_target_module_exists (tuners_utils)
// for target_modules, exclude_modules, layers_to_transform and layers_pattern; _inject_parameters for
// target_parameters; _set_trainable for modules_to_save.
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

// Names of modules: a list of full names or of name ends after a dot, or one regular expression for the full name.
struct ModuleNames {
  std::vector<std::string> ends;
  std::optional<ModulePattern> pattern;

  bool empty() const { return ends.empty() && !pattern; }
  bool contain(std::string_view module) const;
};

class ModuleChoice {
 public:
  // Throws Error(kInvalidArgument) that names source and field, also for combinations that PEFT refuses. `work` must
  // not be null; the queries below throw Error(kInvalidArgument) when it exceeds its limit.
  static ModuleChoice parse(const Json& config, std::string_view source, std::shared_ptr<PatternWork> work);

  // `module` is the name in the base model, e.g. "model.layers.0.self_attn.q_proj". If targetsAllLinear(), the caller
  // excludes the embedding and the output head, whose names depend on the model.
  bool includes(std::string_view module) const;
  // Whether target_modules is PEFT's "all-linear": every linear layer except the output head.
  bool targetsAllLinear() const { return targets_all_linear_; }
  // Whether target_parameters holds the parameter, e.g. "model.layers.0.self_attn.q_proj.weight". Such a parameter is
  // adapted on its own, not through its module.
  bool includesParameter(std::string_view parameter) const;
  bool targetsParameters() const { return !parameters_.empty(); }
  // Whether modules_to_save holds the module or one that contains it.
  bool saves(std::string_view module) const;
  // After this call any module may be saved, and none must be.
  void saveAll() { saves_all_ = true; }
  bool savesAll() const { return saves_all_; }
  // Empty when every module is a target.
  const ModuleNames& targets() const { return targets_; }

 private:
  bool includesLayerOf(std::string_view module) const;
  // Charges the work of one query to `work_`.
  void charge() const;

  std::shared_ptr<PatternWork> work_;  // null until parsed
  ModuleNames targets_;
  bool targets_any_ = false;
  bool targets_all_linear_ = false;
  bool saves_all_ = false;
  std::vector<std::string> parameters_;  // full names or their ends after a dot
  std::vector<std::string> saved_;       // ends of names, not only at a dot
  ModuleNames excluded_;
  std::vector<int64_t> layers_;  // empty: all layers
  std::vector<ModulePattern> layers_patterns_;
};

}  // namespace chorus
