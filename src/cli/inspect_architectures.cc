#include "cli/inspect_architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus {
namespace {

// The names in the table for the values of position_embedding_type.
constexpr std::pair<std::string_view, std::string_view> kPositionNames[] = {
    {"learned_absolute", "learned"},         {"rope_gpt_neox", "RoPE"},
    {"rope_gptj", "RoPE of adjacent pairs"}, {"alibi", "ALiBi"},
    {"alibi_with_scale", "scaled ALiBi"},    {"relative", "relative"}};

const FieldValues* valuesOf(const Architecture& architecture, std::string_view field) {
  const auto found = std::find_if(architecture.fields.begin(), architecture.fields.end(),
                                  [&](const FieldValues& entry) { return entry.field == field; });
  return found == architecture.fields.end() ? nullptr : &*found;
}

std::vector<std::string> positionsOf(const Architecture& architecture) {
  std::vector<std::string> names;
  if (const FieldValues* field = valuesOf(architecture, "position_embedding_type")) {
    for (const Json& value : field->values) names.push_back(value.get<std::string>());
  }
  return names;
}

std::string positionName(const std::string& value) {
  for (const auto& [type, name] : kPositionNames) {
    if (type == value) return std::string(name);
  }
  return value;
}

std::string joined(const std::vector<std::string>& items, const auto& format) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + format(item);
  return text;
}

std::vector<std::string> namesOf(const Architecture& architecture) {
  std::vector<std::string> names = {architecture.name};
  names.insert(names.end(), architecture.aliases.begin(), architecture.aliases.end());
  return names;
}
}  // namespace

std::string architecturesTable(std::span<const Architecture> architectures) {
  std::string table = "| models | architecture | positions | structure |\n|---|---|---|---|\n";
  for (const Architecture& architecture : architectures) {
    table += fmt::format("| {} | {} | {} | {} |\n",
                         joined(architecture.models, [](const std::string& name) { return name; }),
                         joined(namesOf(architecture), [](const std::string& name) { return "`" + name + "`"; }),
                         joined(positionsOf(architecture), positionName), architecture.structure);
  }
  return table;
}

Json architecturesJson(std::span<const Architecture> architectures) {
  Json list = Json::array();
  for (const Architecture& architecture : architectures) {
    const FieldValues* activations = valuesOf(architecture, "hidden_act");
    list.push_back({{"architecture", architecture.name},
                    {"aliases", architecture.aliases},
                    {"models", architecture.models},
                    {"position_embedding_types", positionsOf(architecture)},
                    {"activations", activations ? Json(activations->values) : Json::array()},
                    {"structure", architecture.structure}});
  }
  return list;
}

}  // namespace chorus
