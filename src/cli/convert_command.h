// chorus convert: a Hugging Face model directory becomes a checkpoint directory.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

// Adds the subcommand; its callback throws chorus::Error.
void addConvertCommand(CLI::App& app);

}  // namespace chorus
