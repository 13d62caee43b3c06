// Environment variables of NVIDIA NIM's containers of language models: which flag of `chorus serve` each one stands in
// for, and what happens to those that have no flag. docs/flags.md lists the table.
#pragma once

#include <span>
#include <string_view>

namespace chorus {

enum class NimFate {
  kFlag,      // stands in for the flag
  kNoEffect,  // what it asks for is always so, or means nothing on this server; logged in one line at start
  kRefused,   // any value but those of `off` ends the start with an error
};

struct NimVariable {
  std::string_view name;
  NimFate fate;
  std::string_view flag;  // of kFlag: its first long name, without dashes
  std::string_view off;   // of kRefused: values that ask for nothing, in lower case, separated by '|'; empty: none
  std::string_view note;  // why, and what to use instead; may be empty for kFlag
};

std::span<const NimVariable> nimVariables();

// Checks the variables of a process; environment: as ::environ, "NAME=VALUE" strings that end with a null pointer.
// A variable with an empty value counts as not set. Throws Error(kUnsupported) that names the first refused variable.
// Otherwise it logs a line for each variable without effect, and a warning for each unknown name that begins with NIM_.
void checkNimVariables(const char* const* environment);

}  // namespace chorus
