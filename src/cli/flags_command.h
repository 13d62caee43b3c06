// chorus flags: writes docs/flags.md, the table of every flag and variable, from the parser's own definitions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace chorus {

// The page for all commands of `app`. It is the same on every machine.
std::string flagsPage(CLI::App& app);

// Adds the subcommand, which --help does not list because only developers of the program use it.
void addFlagsCommand(CLI::App& app);

}  // namespace chorus
