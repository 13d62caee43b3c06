// trtllm-build's flags that change nothing on this backend: they are accepted and recorded, or refused by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace chorus {

enum class FlagFate {
  kRecorded,  // accepted, its value checked, stored under build_config.recorded
  kRefused,   // GPU only or not supported: any value but `off` is an error
};

struct BuildFlag {
  std::string_view name;  // without dashes
  FlagFate fate;
  std::string_view values;  // allowed values, separated by '|'; or a kind: "int", "float", "text", "flag"
  std::string_view off;     // the value that a refused flag may have; empty: none
  std::string_view note;
  std::string_view pending = {};  // values of a recorded flag that are meaningful but have no effect yet
};

std::span<const BuildFlag> buildFlags();
// The table that `build --help` prints below its own options.
std::string buildFlagTable();
// Whether the value asks for something that is recorded but has no effect yet.
bool isPending(const BuildFlag& flag, std::string_view value);
// Throws Error(kInvalidArgument) that names the flag and its values.
void checkBuildFlag(const BuildFlag& flag, std::string_view value);

}  // namespace chorus
