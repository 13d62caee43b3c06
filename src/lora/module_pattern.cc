#include "lora/module_pattern.h"

#include <fmt/format.h>

#include <string>

namespace chorus {
namespace {

// Python spells named groups with a P.
std::string fromPython(std::string_view pattern) {
  std::string out(pattern);
  for (size_t at = 0; (at = out.find("(?P<", at)) != std::string::npos;) out.erase(at + 2, 1);
  return out;
}
}  // namespace

ModulePattern ModulePattern::ofNameEnd(std::string_view pattern, std::string_view source) {
  return ModulePattern(Regex(fmt::format(R"(\A(?:.*\.)?(?:{})\z)", fromPython(pattern)), source));
}

ModulePattern ModulePattern::ofWholeName(std::string_view pattern, std::string_view source) {
  return ModulePattern(Regex(fmt::format(R"(\A(?:{})\z)", fromPython(pattern)), source));
}

bool ModulePattern::matches(std::string_view module) const { return !regex_.findAll(module).empty(); }

}  // namespace chorus
