// Environment variables of NVIDIA NIM's containers of language models: which flag of `chorus serve` each one stands in
// for, and what happens to those that have no flag. docs/flags.md lists the table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace chorus {

enum class NimFate {
  kFlag,      // stands in for the flag
  kNoEffect,  // what it asks for is always so, or means nothing on this server; logged in one line at start
  kRefused,   // any value but those of `off` ends the start with an error
  kMode,      // NIM_SSL_MODE: says which of the variables with `modes` count
};

struct NimVariable {
  std::string_view name;
  NimFate fate;
  std::string_view flag;  // only with kFlag: the flag's first long name, without dashes
  std::string_view off;   // only with kRefused: values that ask for nothing, in lower case, separated by '|'
  std::string_view note;  // why, and what to use instead; may be empty for kFlag
  // Only with kFlag: the values of NIM_SSL_MODE under which the variable is used, in lower case, separated by '|'.
  // Empty: it is always used.
  std::string_view modes = {};
};

std::span<const NimVariable> nimVariables();

// The value of NIM_SSL_MODE in lower case; empty if it is not set.
std::string nimSslMode();
// Whether a variable of kFlag stands in for its flag now.
bool countsNow(const NimVariable& variable);

// Checks the variables of a process; environment: as ::environ, "NAME=VALUE" strings that end with a null pointer.
// A variable with an empty value counts as not set. Throws Error(kUnsupported) that names the first refused variable,
// and Error(kInvalidArgument) for an unknown NIM_SSL_MODE. Otherwise it logs a line for each variable without effect,
// and a warning for each unknown name that begins with NIM_.
void checkNimVariables(const char* const* environment);

}  // namespace chorus
