// chorus: one program whose subcommands are the *_command files of this folder.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/variable_names.h"

namespace chorus {
namespace {

// Prints every error as one line on stderr.
int report(std::string_view what, ExitCode code) {
  std::fprintf(stderr, "chorus: error: %s\n", oneLine(what).c_str());
  return static_cast<int>(code);
}

// Opens /dev/null for a standard stream that the caller closed. Otherwise the next file opened would take its number
// and receive the lines meant for the stream.
void holdStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

int runCommand(int argc, char** argv) {
  CLI::App app{"Chorus: one base model, many LoRA adapters, every batch shared"};
  addCommands(app, std::span(argv, static_cast<size_t>(argc)));
  try {
    std::vector<std::string> words = spelledAsDefined(app, {argv + std::min(argc, 1), argv + argc});
    std::reverse(words.begin(), words.end());  // the parser expects them in reverse order
    app.parse(std::move(words));
  } catch (const CLI::Success& e) {  // --help and --version
    return app.exit(e);
  } catch (const std::exception& e) {
    return report(withVariableNames(e.what(), app, std::span(argv, static_cast<size_t>(argc))), exitCodeOf(e));
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace
}  // namespace chorus

int main(int argc, char** argv) {
  using namespace chorus;
  holdStandardStreams();
  // Logs go to stderr, never to stdout; a command's --log_level may change the level later.
  initLogging("info");
  const int status = runCommand(argc, argv);
  errno = 0;
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (status != 0 || written) return status;
  return report(fmt::format("standard output: cannot write: {}", std::strerror(errno != 0 ? errno : EIO)),
                ExitCode::kFailed);
}
