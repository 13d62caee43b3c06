// Flags of TensorRT-LLM's programs that a command takes so that their command lines work here, although nothing depends
// on their values: they are accepted, or refused by name.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace chorus {

enum class FlagFate {
  kAccepted,  // its value is checked; it has no effect
  kRefused,   // GPU only or not supported: any value but `off` is an error
};

struct ForeignFlag {
  std::string_view name;  // without dashes
  FlagFate fate;
  std::string_view values;  // allowed values, separated by '|'; or a kind: "int", "float", "text", "flag"
  std::string_view off;     // the value that a refused flag may have; empty: none
  std::string_view note;
  std::string_view pending = {};  // values of an accepted flag that are meaningful but have no effect yet
};

// Adds the flags to a command; --help shows them only in foreignFlagTable(). The value of a flag that is given is
// stored in `values` under its name; that of a flag without a value is "true".
void addForeignFlags(CLI::App& command, std::span<const ForeignFlag> flags, std::map<std::string, std::string>& values);
// Calls checkForeignFlag for each flag that is given, and logs a warning for each pending value.
void checkForeignFlags(std::span<const ForeignFlag> flags, const std::map<std::string, std::string>& values);
// Throws Error(kInvalidArgument or kUnsupported) that names the flag and its values.
void checkForeignFlag(const ForeignFlag& flag, std::string_view value);
// Whether the value asks for something that is accepted but has no effect yet.
bool isPending(const ForeignFlag& flag, std::string_view value);
// The table that --help prints below a command's own options. accepted: the word for flags that are accepted.
std::string foreignFlagTable(std::string_view title, std::string_view accepted, std::span<const ForeignFlag> flags);

}  // namespace chorus
