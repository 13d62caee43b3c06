// Every command of the program.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

// Adds all commands with their flags and variables. Parsing one runs it and throws what the command throws.
void addCommands(CLI::App& app);

}  // namespace chorus
