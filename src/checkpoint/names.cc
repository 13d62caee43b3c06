#include "checkpoint/names.h"

#include <fnmatch.h>

#include <algorithm>

namespace chorus {
namespace {
constexpr size_t kListedNames = 8;
}  // namespace

bool matchesAny(std::span<const std::string> patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

std::string listSome(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListedNames); ++i) {
    if (i > 0) text += ", ";
    text += names[i];
  }
  if (names.size() > kListedNames) text += " and " + std::to_string(names.size() - kListedNames) + " more";
  return text;
}

}  // namespace chorus
