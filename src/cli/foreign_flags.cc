#include "cli/foreign_flags.h"

#include <charconv>

#include "base/error.h"
#include "base/log.h"

namespace chorus {
namespace {

bool isListed(std::string_view values, std::string_view value) {
  while (!values.empty()) {
    const size_t bar = values.find('|');
    if (values.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) break;
    values.remove_prefix(bar + 1);
  }
  return false;
}

bool isInteger(std::string_view value) {
  long long parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  return error == std::errc() && end == value.data() + value.size() && parsed >= 0;
}

bool isFloat(std::string_view value) {
  double parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  return error == std::errc() && end == value.data() + value.size();
}

// Returns the reason why the value is none of the flag's; empty if it is one.
std::string_view lacking(const ForeignFlag& flag, std::string_view value) {
  if (flag.values == "flag" || flag.values == "text") return "";
  if (flag.values == "int") return isInteger(value) ? "" : "a whole number";
  if (flag.values == "float") return isFloat(value) ? "" : "a number";
  return isListed(flag.values, value) ? "" : flag.values;
}
}  // namespace

void addForeignFlags(CLI::App& command, std::span<const ForeignFlag> flags,
                     std::map<std::string, std::string>& values) {
  for (const ForeignFlag& flag : flags) {
    std::string& value = values[std::string(flag.name)];
    const std::string name = "--" + std::string(flag.name);
    if (flag.values == "flag") {
      command.add_flag_callback(name, [&value] { value = "true"; })->group("");
    } else {
      command.add_option(name, value)->group("");
    }
  }
}

void checkForeignFlags(std::span<const ForeignFlag> flags, const std::map<std::string, std::string>& values) {
  for (const ForeignFlag& flag : flags) {
    const auto given = values.find(std::string(flag.name));
    if (given == values.end() || given->second.empty()) continue;
    checkForeignFlag(flag, given->second);
    if (!isPending(flag, given->second)) continue;
    const std::string value = flag.values == "flag" ? "" : " " + given->second;
    log::warn("--{}{}: recorded, no effect yet", flag.name, value);
  }
}

void checkForeignFlag(const ForeignFlag& flag, std::string_view value) {
  if (flag.fate == FlagFate::kRefused) {
    if (!flag.off.empty() && value == flag.off) return;
    fail(ErrorCode::kUnsupported, "--{}: {}", flag.name, flag.note);
  }
  const std::string_view wanted = lacking(flag, value);
  if (!wanted.empty()) fail(ErrorCode::kInvalidArgument, "--{} {}: use {}", flag.name, value, wanted);
}

bool isPending(const ForeignFlag& flag, std::string_view value) { return isListed(flag.pending, value); }

std::string foreignFlagTable(std::string_view title, std::string_view accepted, std::span<const ForeignFlag> flags) {
  std::string table = std::string(title) + ":\n";
  for (const ForeignFlag& flag : flags) {
    table += fmt::format("  --{:<34}{:<10}{}\n", flag.name, flag.fate == FlagFate::kAccepted ? accepted : "refused",
                         flag.note);
  }
  return table;
}

}  // namespace chorus
