// --backend and --isa, the same on every command that computes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace chorus {

// CHORUS_ISA stands in for an --isa that is not given. isa stays empty for the best set there is.
void addBackendFlags(CLI::App& command, std::string& backend, std::string& isa);
void addIsaFlag(CLI::App& command, std::string& isa);

// What the command asks before it begins to work, since the variable is seen by commands that do not: a name
// that does not exist here is an Error that lists those that do. The set as the executor's configuration has it.
std::optional<std::string> checkedIsa(const std::string& isa);
std::optional<std::string> checkedIsa(const std::string& isa, const std::string& backend);

}  // namespace chorus
