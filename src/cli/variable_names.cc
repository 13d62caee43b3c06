#include "cli/variable_names.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace chorus {
namespace {

// Dashes and underscores are equal in flag names.
std::string spelled(std::string_view flag) {
  std::string same(flag.substr(0, flag.find('=')));
  std::replace(same.begin(), same.end(), '-', '_');
  return same;
}

bool isGiven(const std::string& flag, std::span<const char* const> args) {
  return std::any_of(args.begin(), args.end(), [&](const char* arg) { return spelled(arg) == spelled(flag); });
}

bool isPartOfFlag(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

void replaceFlag(std::string& message, const std::string& flag, const std::string& variable) {
  for (size_t at = 0; (at = message.find(flag, at)) != std::string::npos;) {
    const size_t end = at + flag.size();
    const bool whole =
        (end == message.size() || !isPartOfFlag(message[end])) && (at == 0 || !isPartOfFlag(message[at - 1]));
    if (whole) message.replace(at, flag.size(), variable);
    at += whole ? variable.size() : flag.size();
  }
}

}  // namespace

std::string withVariableNames(std::string message, const CLI::App& app, std::span<const char* const> args) {
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string variable = option->get_envname();
      if (variable.empty()) continue;
      const char* value = std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0') continue;
      for (const std::string& name : option->get_lnames()) {
        const std::string flag = "--" + name;
        if (!isGiven(flag, args)) replaceFlag(message, flag, variable);
      }
    }
  }
  return message;
}

}  // namespace chorus
