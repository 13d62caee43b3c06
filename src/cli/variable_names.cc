#include "cli/variable_names.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "cli/nim_variables.h"

namespace chorus {
namespace {

// Dashes and underscores are equal in flag names.
std::string spelled(std::string_view flag) {
  std::string same(flag.substr(0, flag.find('=')));
  std::replace(same.begin(), same.end(), '-', '_');
  return same;
}

std::string prefixedName(std::string_view prefix, const CLI::Option& option) {
  std::string name(prefix);
  for (const char c : option.get_lnames().front())
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

const char* environmentValue(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr || *value == '\0' ? nullptr : value;
}

bool isPartOfFlag(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

}  // namespace

bool isGiven(const CLI::Option& option, std::span<const char* const> args) {
  const auto& names = option.get_lnames();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::any_of(args.begin(), args.end(), [&](const char* arg) { return spelled(arg) == spelled("--" + name); });
  });
}

std::string variableOf(const CLI::Option& option, std::span<const char* const> args) {
  const std::string variable = option.get_envname();
  if (variable.empty()) return "";
  const char* value = environmentValue(variable);
  if (value == nullptr || isGiven(option, args)) return "";
  // A positional argument has no name on the command line.
  const bool positional = option.get_positional() && option.count() > 0;
  return positional && option.results().front() != value ? "" : variable;
}

void replaceFlag(std::string& message, const std::string& flag, std::string_view replacement) {
  for (size_t at = 0; (at = message.find(flag, at)) != std::string::npos;) {
    const size_t end = at + flag.size();
    const bool whole =
        (end == message.size() || !isPartOfFlag(message[end])) && (at == 0 || !isPartOfFlag(message[at - 1]));
    if (whole) message.replace(at, flag.size(), replacement);
    at += whole ? replacement.size() : flag.size();
  }
}

void addVariableNames(CLI::App& command, std::string_view prefix) {
  for (CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_lnames().empty() || !option->get_envname().empty()) continue;
    option->envname(prefixedName(prefix, *option));
  }
}

void addNimVariables(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || option->get_lnames().empty()) continue;
    const auto variables = nimVariables();
    const auto first = std::find_if(variables.begin(), variables.end(), [&](const NimVariable& variable) {
      return variable.fate == NimFate::kFlag && variable.flag == option->get_lnames().front();
    });
    if (first != variables.end()) option->envname(std::string(first->name));
  }
}

std::vector<std::string> variablesOf(const CLI::Option& option) {
  const std::string chosen = option.get_envname();
  if (chosen.empty()) return {};
  std::vector<std::string> names;
  if (!option.get_lnames().empty()) {
    for (const NimVariable& variable : nimVariables()) {
      if (variable.fate == NimFate::kFlag && variable.flag == option.get_lnames().front()) {
        names.emplace_back(variable.name);
      }
    }
    names.push_back(prefixedName("CHORUS_", option));
  }
  if (std::find(names.begin(), names.end(), chosen) == names.end()) return {chosen};
  return names;
}

void chooseVariables(CLI::App& command, std::span<const char* const> args) {
  for (CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || isGiven(*option, args)) continue;
    std::string chosen;
    const std::vector<std::string> names = variablesOf(*option);
    const auto counts = [&](const std::string& name) {
      const auto variables = nimVariables();
      const auto known = std::ranges::find(variables, name, &NimVariable::name);
      return known == variables.end() || countsNow(*known);
    };
    for (const std::string& name : names) {
      const char* value = environmentValue(name);
      if (value == nullptr || !counts(name)) continue;
      if (chosen.empty()) {
        chosen = name;
      } else if (!name.starts_with("CHORUS_") && std::string_view(environmentValue(chosen)) != value) {
        fail(ErrorCode::kInvalidArgument, "{}: {} is set too, to another value of the same flag; unset one of them",
             name, chosen);
      }
    }
    if (chosen.empty() && !names.empty() && !counts(names.front())) chosen = names.back();
    if (!chosen.empty()) option->envname(chosen);
  }
}

std::string withVariableNames(std::string message, const CLI::App& app, std::span<const char* const> args) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string variable = variableOf(*option, args);
      if (variable.empty()) continue;
      for (const std::string& name : option->get_lnames()) replaceFlag(message, "--" + name, variable);
    }
  }
  return message;
}

}  // namespace chorus
