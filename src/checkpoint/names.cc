#include "checkpoint/names.h"

#include <fnmatch.h>

#include <algorithm>

namespace chorus {
namespace {
// The field name that TensorRT-LLM gives to a module's scales.
std::string_view scaleField(bool grouped) { return grouped ? "weights_scaling_factor" : "per_channel_scale"; }
}  // namespace

std::optional<std::string> olderName(std::string_view tensor) {
  constexpr std::string_view kModel = "transformer.";
  for (const std::string_view table : {"vocab_embedding.weight", "position_embedding.weight"}) {
    if (!tensor.starts_with(kModel) || tensor.substr(kModel.size()) != table) continue;
    return std::string(kModel).append("embedding.").append(table);
  }
  return std::nullopt;
}

std::string_view moduleOf(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::string scaleName(std::string_view weight, bool grouped) {
  return std::string(moduleOf(weight)).append(".").append(scaleField(grouped));
}

std::optional<ScaledWeight> weightOfScales(std::string_view scales) {
  const std::string weight = std::string(moduleOf(scales)) + ".weight";
  for (const bool grouped : {false, true}) {
    if (scales == scaleName(weight, grouped)) return ScaledWeight{weight, grouped};
  }
  return std::nullopt;
}

bool matchesAny(std::span<const std::string> patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  });
}

std::string listSome(std::span<const std::string> names) { return listSome(names, names.size()); }

std::string listSome(std::span<const std::string> names, size_t count) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListedNames); ++i) {
    if (i > 0) text += ", ";
    text += names[i];
  }
  if (count > kListedNames) text += " and " + std::to_string(count - kListedNames) + " more";
  return text;
}

}  // namespace chorus
