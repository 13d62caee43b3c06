// chorus flags: writes docs/flags.md, or docs/chorus.1 with --man, to standard output.
#pragma once

#include <CLI/CLI.hpp>

namespace chorus {

// Adds the subcommand, which --help does not list because only developers of the program use it.
void addFlagsCommand(CLI::App& app);

}  // namespace chorus
