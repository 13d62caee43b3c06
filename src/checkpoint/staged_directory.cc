#include "checkpoint/staged_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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

StagedDirectory::StagedDirectory(std::filesystem::path target, std::string_view what,
                                 const std::function<bool(const std::filesystem::path&)>& replaceable)
    : target_(normalized(target)) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(target_, error);
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_directory(status)) {
      fail(ErrorCode::kInvalidArgument, "{}: exists and is not a directory; choose another output directory",
           target_.string());
    }
    if (!std::filesystem::is_empty(target_, error) && !replaceable(target_)) {
      fail(ErrorCode::kInvalidArgument,
           "{}: the directory has files that do not belong to {}; choose another output directory", target_.string(),
           what);
    }
  }
  std::filesystem::create_directories(target_.parent_path(), error);
  std::string name = (target_.parent_path() / fmt::format(".{}.XXXXXX", target_.filename().string())).string();
  if (::mkdtemp(name.data()) == nullptr) {
    fail(ErrorCode::kExhausted, "{}: cannot create the output directory: {}", target_.string(), std::strerror(errno));
  }
  staging_ = name;
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

void StagedDirectory::publish() {
  syncDirectory(staging_);
  const std::lock_guard lock(Staged::all().mutex);
  auto& staged = Staged::all().paths;
  if (::rename(staging_.c_str(), target_.c_str()) == 0) {
    staged.erase(staging_);
    staging_.clear();
  } else if (::renameat2(AT_FDCWD, staging_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    // The file system has no atomic exchange, so the old directory is renamed first.
    const std::string aside = staging_.string() + ".old";
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
  syncDirectory(target_.parent_path());
}

}  // namespace chorus
