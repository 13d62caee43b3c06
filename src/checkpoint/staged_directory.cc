#include "checkpoint/staged_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "base/error.h"

namespace chorus {
namespace {

void syncDirectory(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// "dir/" and "dir/." name the same place as "dir"; a sibling needs the last real component.
std::filesystem::path normalized(const std::filesystem::path& path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "the output directory has no name; give one");
  std::filesystem::path absolute = std::filesystem::absolute(path).lexically_normal();
  if (absolute.filename().empty()) absolute = absolute.parent_path();
  return absolute;
}

// All staging directories that exist. Never destroyed, because an interrupt may arrive while the process exits.
struct Staged {
  std::mutex mutex;
  std::set<std::filesystem::path> paths;

  static Staged& all() {
    static auto* const staged = new Staged;
    return *staged;
  }
};

int g_interrupts[2];  // a pipe, because write() is one of the few calls allowed in a signal handler

void onInterrupt(int signal) {
  const char byte = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t written = ::write(g_interrupts[1], &byte, 1);
}

void endByInterrupt() {
  char signal = 0;
  while (::read(g_interrupts[0], &signal, 1) != 1) {
  }
  Staged& staged = Staged::all();
  const std::lock_guard lock(staged.mutex);  // held until the process ends, so no directory is published or created
  constexpr int kTries = 3;                  // other threads may still create files in them
  for (const auto& path : staged.paths) {
    std::error_code error;
    for (int i = 0; i < kTries && std::filesystem::exists(path, error); ++i) std::filesystem::remove_all(path, error);
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}
}  // namespace

void removeStagedOnInterrupt() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (::pipe2(g_interrupts, O_CLOEXEC) != 0) return;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action{};
      if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
      action.sa_handler = onInterrupt;
      action.sa_flags = SA_RESTART;
      ::sigaction(signal, &action, nullptr);
    }
    std::thread(endByInterrupt).detach();
  });
}

std::optional<std::string> firstForeignEntry(
    const std::filesystem::path& directory, const std::function<bool(const std::filesystem::directory_entry&)>& isOwn) {
  std::optional<std::string> first;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if ((!first || name < *first) && !isOwn(entry)) first = name;
  }
  return first;
}

StagedDirectory::StagedDirectory(std::filesystem::path target, std::string what, FindForeign find_foreign)
    : target_(normalized(target)), what_(std::move(what)), find_foreign_(std::move(find_foreign)) {
  checkReplaceable(target_);
  std::error_code error;
  const std::filesystem::path parent = target_.parent_path();
  std::filesystem::create_directories(parent, error);
  removeStale(parent, siblingPrefix("new"), FileLock::tryDirectory);
  LockedDirectory sibling = makeLockedDirectory(parent, siblingPrefix("new"));
  staging_ = std::move(sibling.path);
  lock_ = std::move(sibling.lock);
  const std::lock_guard lock(Staged::all().mutex);
  Staged::all().paths.insert(staging_);
  ::chmod(staging_.c_str(), 0755);
}

StagedDirectory::~StagedDirectory() {
  std::error_code ignored;
  if (staging_.empty()) return;
  std::filesystem::remove_all(staging_, ignored);
  const std::lock_guard lock(Staged::all().mutex);
  Staged::all().paths.erase(staging_);
}

std::string StagedDirectory::siblingPrefix(std::string_view kind) const {
  return fmt::format(".{}.chorus-{}-", target_.filename().string(), kind);
}

void StagedDirectory::checkReplaceable(const std::filesystem::path& place) const {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(place, error);
  if (!std::filesystem::exists(status)) return;
  if (!std::filesystem::is_directory(status)) {
    fail(ErrorCode::kInvalidArgument, "{}: exists and is not a directory; choose another output directory",
         target_.string());
  }
  if (std::filesystem::is_empty(place, error)) return;
  if (const auto foreign = find_foreign_(place)) {
    fail(ErrorCode::kInvalidArgument,
         "{}: the directory has files that do not belong to {}, such as '{}'; choose another output directory",
         target_.string(), what_, *foreign);
  }
}

void StagedDirectory::publish() {
  syncDirectory(staging_);
  const std::lock_guard lock(Staged::all().mutex);
  if (::rename(staging_.c_str(), target_.c_str()) == 0) {
    Staged::all().paths.erase(staging_);
    staging_.clear();
  } else {
    replace();
  }
  syncDirectory(target_.parent_path());
}

// Since the constructor looked at the target, somebody may have written files there. They are looked for once more
// before the exchange, and after it, when nobody finds the old directory under its name any more.
void StagedDirectory::replace() {
  auto& staged = Staged::all().paths;
  checkReplaceable(target_);
  if (auto lock = FileLock::tryDirectory(target_)) old_lock_ = std::move(*lock);
  const auto exchange = [&] {
    return ::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0;
  };
  if (exchange()) {
    try {
      checkReplaceable(staging_);
    } catch (...) {
      if (!exchange()) {  // the foreign files are in the sibling, which therefore stays
        staged.erase(staging_);
        staging_.clear();
      }
      throw;
    }
    return;
  }
  // The file system has no atomic exchange, so the old directory is renamed first. Its name is not that of a stale
  // sibling, because it is the only result until the new one has its place.
  const std::filesystem::path aside =
      target_.parent_path() / (siblingPrefix("old") + staging_.string().substr(staging_.string().size() - 6));
  if (::rename(target_.c_str(), aside.c_str()) != 0 || ::rename(staging_.c_str(), target_.c_str()) != 0) {
    const int reason = errno;
    ::rename(aside.c_str(), target_.c_str());
    fail(ErrorCode::kExhausted, "{}: cannot put the new directory in place: {}", target_.string(),
         std::strerror(reason));
  }
  staged.erase(staging_);
  staging_ = aside;
  staged.insert(staging_);
}

}  // namespace chorus
