// chorus: one program, one subcommand per file of this folder.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench/bench_command.h"
#include "cli/build_command.h"
#include "cli/convert_command.h"
#include "cli/dora_normalize_command.h"
#include "cli/inspect_command.h"
#include "cli/lora_convert_command.h"
#include "cli/run_command.h"
#include "cli/serve_command.h"
#include "cli/text_commands.h"
#include "cli/variable_names.h"

namespace {

// One line on stderr whatever went wrong.
int report(const char* what) {
  std::fprintf(stderr, "chorus: error: %s\n", chorus::oneLine(what).c_str());
  return 1;
}

// In place of a standard stream that the caller has closed: the next file opened would take its number, and lines meant
// for the stream would land in that file.
void holdStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

int runCommand(int argc, char** argv) {
  CLI::App app{"Chorus: one base model, many LoRA adapters, every batch shared"};
  app.require_subcommand(1);
  app.set_version_flag("--version", CHORUS_VERSION);
  chorus::addConvertCommand(app);
  chorus::addBuildCommand(app);
  chorus::addLoraConvertCommand(app);
  chorus::addDoraNormalizeCommand(app);
  chorus::addRunCommand(app);
  chorus::addServeCommand(app);
  chorus::addTextCommands(app);
  chorus::addBenchCommand(app);
  chorus::addInspectCommand(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    // CLI11 would say that a subcommand is missing, not which word is none.
    if (argc > 1 && app.get_subcommands().empty()) {
      return report(fmt::format("{}: no such command or flag; chorus --help lists them", argv[1]).c_str());
    }
    return report(chorus::withVariableNames(e.what(), app, std::span(argv, static_cast<size_t>(argc))).c_str());
  } catch (const std::exception& e) {
    return report(chorus::withVariableNames(e.what(), app, std::span(argv, static_cast<size_t>(argc))).c_str());
  }
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  holdStandardStreams();
  chorus::initLogging("info");  // until a command's --log_level says otherwise: stderr, never stdout
  const int status = runCommand(argc, argv);
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (status != 0 || written) return status;
  return report(fmt::format("standard output: cannot write: {}", std::strerror(errno != 0 ? errno : EIO)).c_str());
}
