// Makes errors about values from environment variables name the variable instead of the flag that it replaces.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace chorus {

// Returns the message with each flag replaced by the variable that gave its value. `app` has parsed, or failed to
// parse, the command line; `args` are its words. A flag among them keeps its name, because it has precedence over the
// variable.
std::string withVariableNames(std::string message, const CLI::App& app, std::span<const char* const> args);

// Whether one of the words is one of the option's long names, in any spelling, with or without a value.
bool isGiven(const CLI::Option& option, std::span<const char* const> args);

// The environment variable that gave the option its value; empty if it is not set, or if the command line `args` gave
// the value. Call it after parsing.
std::string variableOf(const CLI::Option& option, std::span<const char* const> args);

// Replaces every occurrence of the flag as a whole word: --port in "--port: ...", but not in "--port_range".
void replaceFlag(std::string& message, const std::string& flag, std::string_view replacement);

// Gives every option of the command that has a long name and no variable one: prefix and the name in upper case.
void addVariableNames(CLI::App& command, std::string_view prefix);

}  // namespace chorus
