#include "cli/commands.h"

#include <CLI/CLI.hpp>

#include "cli/bench/bench_command.h"
#include "cli/build_command.h"
#include "cli/convert_command.h"
#include "cli/dora_normalize_command.h"
#include "cli/flags_command.h"
#include "cli/inspect_command.h"
#include "cli/lora_convert_command.h"
#include "cli/run_command.h"
#include "cli/serve_command.h"
#include "cli/summarize_command.h"
#include "cli/text_commands.h"

namespace chorus {

void addCommands(CLI::App& app, std::span<const char* const> words) {
  app.name("chorus");
  app.require_subcommand(1);
  app.set_version_flag("--version", CHORUS_VERSION);
  addConvertCommand(app);
  addBuildCommand(app);
  addLoraConvertCommand(app);
  addDoraNormalizeCommand(app);
  addRunCommand(app);
  addServeCommand(app, words);
  addSummarizeCommand(app);
  addTextCommands(app);
  addBenchCommand(app);
  addInspectCommand(app);
  addFlagsCommand(app);
  app.footer(
      "Dashes and underscores in flags and commands are the same. Exit status: 0 done; 1 a failure (memory, disk, "
      "port:\n"
      "try again); 2 wrong use or a file that is not what it should be.");
}

}  // namespace chorus
