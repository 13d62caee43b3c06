// The environment variables that stand in for flags. Errors about their values name the variable instead of the flag.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// Sets the variable of every option of the command that has a long name but no variable yet. The name of the variable
// is the prefix and the long name in upper case.
void addVariableNames(CLI::App& command, std::string_view prefix);

// Gives each option of the command the first of NIM's variables that stand in for it (cli/nim_variables.h). Call it
// before addVariableNames().
void addNimVariables(CLI::App& command);

// All variables that may stand in for the option, the one that pages show first: NIM's, then CHORUS_ and its name.
// Empty for an option without a variable.
std::vector<std::string> variablesOf(const CLI::Option& option);

// Makes the parser read, for each option that is not among the words `args`, the first of its variables that is set
// and not empty, and counts (countsNow() in cli/nim_variables.h). NIM's override the one with CHORUS_, which images and
// services set. Call it before the command is parsed. Throws Error(kInvalidArgument), which names both, if two of NIM's
// variables for one option have different values.
void chooseVariables(CLI::App& command, std::span<const char* const> args);

}  // namespace chorus
