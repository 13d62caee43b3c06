// chorus build: checkpoint -> engine.
#pragma once

namespace CLI {
class App;
}

namespace chorus {
void addBuildCommand(CLI::App& app);
}
