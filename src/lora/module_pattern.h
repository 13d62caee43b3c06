// A key of PEFT's rank_pattern or alpha_pattern.
#pragma once

#include <string>
#include <string_view>

namespace chorus {

// Matches a module name as PEFT does: the regular expression `(.*\.)?(pattern)$` from the name's beginning. Patterns
// of letters, digits, '_', '-' and '.' are supported, '.' standing for any character; throws Error(kUnsupported) that
// names source for others.
class ModulePattern {
 public:
  ModulePattern(std::string_view pattern, std::string_view source);
  bool matches(std::string_view module) const;

 private:
  std::string pattern_;
};

}  // namespace chorus
