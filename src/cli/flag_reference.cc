#include "cli/flag_reference.h"

#include <algorithm>

#include "cli/arguments.h"
#include "cli/build_flags.h"
#include "cli/evaluation/summarize_flags.h"
#include "cli/variable_names.h"

namespace chorus {
namespace {

// Variables that replace no flag: name, who reads it, meaning.
constexpr const char* kOtherVariables[][3] = {
    {"XDG_CACHE_HOME", "chorus serve",
     "Its subdirectory chorus keeps the engines built from Hugging Face directories, unless --cache_dir is given"},
    {"HOME", "chorus serve",
     "Its subdirectory .cache/chorus keeps them, unless --cache_dir or XDG_CACHE_HOME is given"},
};

std::string inOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::vector<std::string> namesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (option.get_positional()) names.push_back(option.get_name(true));
  return names;
}

// The values that the option takes: the range or list of its checks, or else its type. CLI11 joins the two as
// TYPE:CHECK.
std::string valuesOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  const std::string kind = type.substr(0, colon);
  std::string values = colon != std::string::npos        ? type.substr(colon + 1)
                       : kind == "INT" || kind == "UINT" ? "whole number"
                       : kind == "FLOAT"                 ? "number"
                                                         : "text";
  if (option.get_items_expected_max() > 1) values += option.get_allow_extra_args() ? " ..." : ", again for each";
  return values;
}

std::optional<ForeignFlagEntries> foreignFlagsOf(const std::string& command) {
  if (command == "build") {
    return ForeignFlagEntries{"Further flags of trtllm-build",
                              "chorus build takes them too. *Recorded*: the value is checked and stored in the "
                              "engine's configuration. *Refused*: an error.",
                              "recorded", buildFlags()};
  }
  if (command == "summarize") {
    return ForeignFlagEntries{"Further flags of summarize.py",
                              "chorus summarize takes them too. *Accepted*: the value is checked and has no effect. "
                              "*Refused*: an error.",
                              "accepted", summarizeFlags()};
  }
  return std::nullopt;
}

void addCommand(CLI::App& command, std::vector<CommandEntry>& entries) {
  if (command.get_group().empty()) return;
  for (CLI::App* sub : command.get_subcommands(nullptr)) addCommand(*sub, entries);
  if (!command.get_subcommands(nullptr).empty()) return;
  CommandEntry entry{.name = calledAs(command),
                     .description = inOneLine(command.get_description()),
                     .foreign = foreignFlagsOf(command.get_name())};
  if (entry.description.ends_with('.')) entry.description.pop_back();
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_group().empty()) continue;
    entry.flags.push_back({.names = namesOf(*option),
                           .values = valuesOf(*option),
                           .required = option->get_required(),
                           .preset = option->get_default_str(),
                           .variables = variablesOf(*option),
                           .description = inOneLine(option->get_description())});
  }
  entries.push_back(std::move(entry));
}

void addVariables(const CLI::App& command, std::vector<VariableEntry>& variables) {
  for (const CLI::App* sub : command.get_subcommands(nullptr)) addVariables(*sub, variables);
  for (const CLI::Option* option : command.get_options()) {
    const std::vector<std::string> names = variablesOf(*option);
    if (names.empty()) continue;
    const auto known =
        std::find_if(variables.begin(), variables.end(), [&](const VariableEntry& v) { return v.names == names; });
    if (known == variables.end()) {
      variables.push_back({names, calledAs(command), namesOf(*option), inOneLine(option->get_description())});
    } else {
      known->commands += ", " + calledAs(command);
    }
  }
}

}  // namespace

FlagReference flagReferenceOf(CLI::App& app) {
  FlagReference reference;
  for (CLI::App* command : app.get_subcommands(nullptr)) addCommand(*command, reference.commands);
  addVariables(app, reference.variables);
  for (const auto& [name, command, description] : kOtherVariables) {
    reference.variables.push_back({{name}, command, {}, description});
  }
  return reference;
}

std::string nimFateText(const NimVariable& variable, std::string_view open, std::string_view close) {
  const auto code = [&](std::string_view text) { return std::string(open).append(text).append(close); };
  switch (variable.fate) {
    case NimFate::kFlag:
      return code("--" + std::string(variable.flag));
    case NimFate::kMode:
      return "mode";
    case NimFate::kNoEffect:
      return "no effect";
    case NimFate::kRefused:
      break;
  }
  if (variable.off.empty()) return "refused";
  std::string values;
  for (std::string_view rest = variable.off;;) {
    const size_t bar = rest.find('|');
    values += (values.empty() ? "" : ", ") + code(rest.substr(0, bar));
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  return "refused (" + values + ")";
}

}  // namespace chorus
