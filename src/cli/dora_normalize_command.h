// chorus dora-normalize: divides DoRA magnitudes by the base model's row norms.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

// Adds the subcommand; its callback throws chorus::Error.
void addDoraNormalizeCommand(CLI::App& app);

}  // namespace chorus
