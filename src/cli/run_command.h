// chorus run: answers prompts from the command line or a token file and exits.
#pragma once

namespace CLI {
class App;
}

namespace chorus {
void addRunCommand(CLI::App& app);
}
