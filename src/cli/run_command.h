// chorus run: prompts from the command line or a token file, answered in one go.
#pragma once

namespace CLI {
class App;
}

namespace chorus {
void addRunCommand(CLI::App& app);
}
