// Makes errors about values from environment variables name the variable instead of the flag that it replaces.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace chorus {

// Returns the message with each flag replaced by the variable that gave its value. `app` has parsed, or failed to
// parse, the command line; `args` are its words. A flag among them keeps its name, because it has precedence over the
// variable.
std::string withVariableNames(std::string message, const CLI::App& app, std::span<const char* const> args);

}  // namespace chorus
