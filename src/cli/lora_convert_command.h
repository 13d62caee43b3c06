// chorus lora-convert: a PEFT adapter becomes the two tensors of an Executor request.
#pragma once

namespace CLI {
class App;
}

namespace chorus {

// Adds the subcommand; its callback throws chorus::Error.
void addLoraConvertCommand(CLI::App& app);

}  // namespace chorus
