// The regular expressions over module names in PEFT's adapter_config.json.
#pragma once

#include <string_view>

#include "text/tokenizer/regex.h"

namespace chorus {

class ModulePattern {
 public:
  // A key of rank_pattern or alpha_pattern: the pattern takes the whole name or its end after a dot, as PEFT's
  // `(.*\.)?(pattern)$` does. Throws Error(kCorrupt) that names source when the pattern doesn't compile.
  static ModulePattern ofNameEnd(std::string_view pattern, std::string_view source);
  // target_modules given as one string: the pattern takes the whole name.
  static ModulePattern ofWholeName(std::string_view pattern, std::string_view source);

  // Throws Error(kExhausted) for a pattern that backtracks without end.
  bool matches(std::string_view module) const;

 private:
  explicit ModulePattern(Regex regex) : regex_(std::move(regex)) {}
  Regex regex_;
};

}  // namespace chorus
