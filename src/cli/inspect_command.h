// chorus inspect
#pragma once

namespace CLI {
class App;
}

namespace chorus {

void addInspectCommand(CLI::App& app);

}  // namespace chorus
