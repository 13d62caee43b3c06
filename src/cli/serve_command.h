// chorus serve: the HTTP server.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

// Adds the subcommand. When it is given, parsing runs the server and returns when the server ends; throws Error.
void addServeCommand(CLI::App& app);

}  // namespace chorus
