// Errors about values that came from environment variables name the variable, not the flag that it stands in for.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace chorus {

// The message with each flag replaced by the variable that gave its value. app: after parsing, or after a parse that
// failed. args: the words of the command line; a flag among them keeps its name, because it has precedence.
std::string withVariableNames(std::string message, const CLI::App& app, std::span<const char* const> args);

}  // namespace chorus
