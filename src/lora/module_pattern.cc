#include "lora/module_pattern.h"

#include <fmt/format.h>

namespace chorus {

ModulePattern ModulePattern::ofNameEnd(std::string_view pattern, std::string_view source) {
  return ModulePattern(Regex(fmt::format(R"(\A(?:.*\.)?(?:{})\z)", pattern), source));
}

ModulePattern ModulePattern::ofWholeName(std::string_view pattern, std::string_view source) {
  return ModulePattern(Regex(fmt::format(R"(\A(?:{})\z)", pattern), source));
}

bool ModulePattern::matches(std::string_view module) const { return !regex_.findAll(module).empty(); }

}  // namespace chorus
