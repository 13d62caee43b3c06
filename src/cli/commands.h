// Every command of the program.
#pragma once

#include <span>

namespace CLI {
class App;
}

namespace chorus {

// Adds all commands with their flags and variables. Parsing one runs it and throws what the command throws.
// words: the command line that will be parsed, if it is known; it must live as long as the app.
void addCommands(CLI::App& app, std::span<const char* const> words = {});

}  // namespace chorus
