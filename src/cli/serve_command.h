// chorus serve: the HTTP server.
#pragma once

#include <span>

namespace CLI {
class App;
}

namespace chorus {

// Adds the subcommand. When it is given, parsing runs the server and returns when the server ends; throws Error. words:
// the command line that will be parsed; it decides which values are logged as those of flags.
void addServeCommand(CLI::App& app, std::span<const char* const> words);

}  // namespace chorus
