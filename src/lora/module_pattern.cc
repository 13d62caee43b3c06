#include "lora/module_pattern.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace chorus {

ModulePattern::ModulePattern(std::string_view pattern, std::string_view source) : pattern_(pattern) {
  const bool plain = std::all_of(pattern.begin(), pattern.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (!plain || pattern.empty()) {
    fail(ErrorCode::kUnsupported, "{}: pattern '{}' is a regular expression; name the modules plainly", source, pattern);
  }
}

bool ModulePattern::matches(std::string_view module) const {
  if (module.size() < pattern_.size()) return false;
  const size_t begin = module.size() - pattern_.size();
  if (begin > 0 && module[begin - 1] != '.') return false;
  return std::equal(pattern_.begin(), pattern_.end(), module.begin() + static_cast<std::ptrdiff_t>(begin),
                    [](char expected, char c) { return expected == '.' || expected == c; });
}

}  // namespace chorus
