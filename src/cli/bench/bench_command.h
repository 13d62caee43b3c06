// chorus bench: measures the executor path and compares it with the machine's roofs.
#pragma once

namespace CLI {
class App;
}

namespace chorus {
void addBenchCommand(CLI::App& app);
}
