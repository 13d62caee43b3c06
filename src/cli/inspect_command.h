// chorus inspect: describes a file or directory and reports what is wrong with it.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

void addInspectCommand(CLI::App& app);

}  // namespace chorus
