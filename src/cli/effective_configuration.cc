#include "cli/effective_configuration.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/printable.h"
#include "cli/config_file.h"
#include "cli/flag_values.h"
#include "cli/variable_names.h"

namespace chorus {
namespace {

std::string valueOf(const CLI::Option& option) {
  if (option.count() == 0) {
    if (option.get_items_expected_max() == 0) return "false";
    const std::string preset = option.get_default_str();
    return preset.empty() ? "(unset)" : preset;
  }
  if (isSecret(option)) return "(hidden)";
  constexpr size_t kMost = 512;
  return printable(fmt::format("{}", fmt::join(option.results(), ", ")), kMost);
}

std::string sourceOf(const CLI::Option& option, const ConfigFile& file, std::span<const char* const> args) {
  if (option.count() == 0) return "default";
  if (const std::string place = file.placeOf(option); !place.empty()) return place;
  const std::string variable = variableOf(option, args);
  return variable.empty() ? "flag" : variable;
}

}  // namespace

std::string effectiveConfiguration(const CLI::App& command, const ConfigFile& file, std::span<const char* const> args) {
  std::string text = "configuration (a flag overrides a variable, a variable the file, the file the default):\n";
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_lnames().empty()) continue;
    text += fmt::format("  {:<30} {}  [{}]\n", option->get_lnames().front(), valueOf(*option),
                        sourceOf(*option, file, args));
  }
  return text;
}

}  // namespace chorus
