#include "cli/dora_normalize_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/log.h"
#include "checkpoint/staged_directory.h"
#include "convert/dora_normalize.h"

namespace chorus {
namespace {

struct DoraNormalizeArguments {
  std::string in_dir;
  std::string base_model;
  std::string out_dir;
  bool strip = false;
};

void runDoraNormalize(const DoraNormalizeArguments& arguments) {
  initLogging("info");
  removeStagedOnInterrupt();
  const DoraNormalisation done =
      normaliseDora(arguments.in_dir, arguments.base_model, arguments.out_dir, arguments.strip);
  if (!done.used_dora) log::warn("{}: a LoRA adapter without magnitudes, written as it was", arguments.in_dir);
  log::info("{}: {} modules{}", arguments.out_dir, done.modules,
            done.used_dora && arguments.strip ? ", magnitudes left out" : "");
}
}  // namespace

void addDoraNormalizeCommand(CLI::App& app) {
  auto arguments = std::make_shared<DoraNormalizeArguments>();
  CLI::App* command = app.add_subcommand("dora-normalize", "Divide a DoRA adapter's magnitudes by its base's norms");
  command
      ->add_option("-i,--in-dir", arguments->in_dir,
                   "PEFT directory: adapter_config.json and adapter_model.safetensors or .bin")
      ->required();
  command->add_option("-b,--base-model", arguments->base_model, "Hugging Face directory of the base model")->required();
  command->add_option("-o,--out-dir", arguments->out_dir, "PEFT directory to write; an earlier result is replaced")
      ->required();
  command->add_flag("--strip", arguments->strip, "Leave the magnitudes out: a plain LoRA adapter");
  command->footer(
      "Each magnitude m becomes m / ||W + scale B A||, the norm over the module's output row: the form in which\n"
      "lora-convert and the Executor's tensors take DoRA adapters. For serving from a directory it is not needed.");
  command->callback([arguments] { runDoraNormalize(*arguments); });
}

}  // namespace chorus
