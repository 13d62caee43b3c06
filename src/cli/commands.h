// Every command of the program.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

// Adds all commands, with their flags and variables; parsing one runs it. Throws what the commands throw.
void addCommands(CLI::App& app);

}  // namespace chorus
