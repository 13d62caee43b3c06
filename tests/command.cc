#include "command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "test_engines.h"

namespace chorus::test {

CommandResult runChorus(const std::vector<std::string>& arguments, const std::string& standard_output,
                        const std::string& directory) {
  const TempDir dir;
  const std::string kept = dir.path() / "out", out = standard_output.empty() ? kept : standard_output;
  const std::string errors = dir.path() / "errors";
  std::vector<char*> argv = {const_cast<char*>(CHORUS_BINARY)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT, 0600);
  if (!directory.empty()) posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, CHORUS_BINARY, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) fail(ErrorCode::kNotFound, "{}: cannot run it", CHORUS_BINARY);
  int state = 0;
  waitpid(pid, &state, 0);
  constexpr size_t kMostBytes = size_t{16} << 20;
  return {.status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state),
          .out = standard_output.empty() ? readFile(kept, kMostBytes) : "",
          .errors = readFile(errors, kMostBytes)};
}

}  // namespace chorus::test
