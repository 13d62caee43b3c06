// --backend and --isa, the same on every command that computes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace chorus {

// Adds both flags; CHORUS_ISA stands in for an --isa that is not given. A name that does not exist here is an Error that
// lists those that do. isa stays empty for the best set there is.
void addBackendFlags(CLI::App& command, std::string& backend, std::string& isa);
void addIsaFlag(CLI::App& command, std::string& isa);

// What --isa says, as the executor's configuration has it.
inline std::optional<std::string> chosenIsa(const std::string& isa) {
  return isa.empty() ? std::nullopt : std::optional(isa);
}

}  // namespace chorus
