#include "base/file_lock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace chorus {

namespace fs = std::filesystem;

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<FileLock> FileLock::tryLock(int fd) {
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return lock;
}

std::optional<FileLock> FileLock::tryFile(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) fail(ErrorCode::kExhausted, "{}: cannot lock: {}", file.string(), std::strerror(errno));
  return tryLock(fd);
}

std::optional<FileLock> FileLock::tryDirectory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return fd < 0 ? std::nullopt : tryLock(fd);
}

LockedDirectory makeLockedDirectory(const fs::path& parent, std::string_view prefix) {
  // Before a new directory is locked, another process may take it for a stale one and remove it.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    std::string name = (parent / (std::string(prefix) + "XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) {
      fail(ErrorCode::kExhausted, "{}: cannot create a directory: {}", parent.string(), std::strerror(errno));
    }
    FileLock lock(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    while (::flock(lock.fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
    std::error_code error;
    if (fs::exists(name, error)) return {name, std::move(lock)};
  }
  fail(ErrorCode::kExhausted, "{}: other processes remove every new directory", parent.string());
}

void removeStale(const fs::path& parent, std::string_view prefix,
                 const std::function<std::optional<FileLock>(const fs::path&)>& lockOf) {
  std::error_code error;
  std::vector<fs::path> candidates;
  for (auto entry = fs::directory_iterator(parent, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) candidates.push_back(entry->path());
  }
  for (const fs::path& path : candidates) {
    if (const auto lock = lockOf(path)) fs::remove_all(path, error);
  }
}

}  // namespace chorus
