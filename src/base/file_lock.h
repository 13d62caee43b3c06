// Locks on files and directories (flock), with which processes leave each other's files alone. The kernel releases the
// lock of a process that ends, however it ends.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace chorus {

// Holds an exclusive lock for its lifetime. The default one holds none.
class FileLock {
 public:
  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  // Locks the file, which is created if it is missing. nullopt: another process, or another FileLock, holds it. Throws
  // Error(kExhausted) if the file cannot be opened.
  static std::optional<FileLock> tryFile(const std::filesystem::path& file);
  // Locks a directory. nullopt: it is held, it does not exist, or it is on a file system without locks of directories,
  // such as NFS.
  static std::optional<FileLock> tryDirectory(const std::filesystem::path& directory);

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  static std::optional<FileLock> tryLock(int fd);
  friend struct LockedDirectory makeLockedDirectory(const std::filesystem::path& parent, std::string_view prefix);

  int fd_ = -1;
};

struct LockedDirectory {
  std::filesystem::path path;
  FileLock lock;
};
// Creates a directory with a new name that begins with `prefix`, and locks it if its file system can. Throws
// Error(kExhausted).
LockedDirectory makeLockedDirectory(const std::filesystem::path& parent, std::string_view prefix);

// Removes the entries of `parent` whose names begin with `prefix` and for which lockOf() returns a lock: those left
// behind by processes that have ended. A failure is not an error.
void removeStale(const std::filesystem::path& parent, std::string_view prefix,
                 const std::function<std::optional<FileLock>(const std::filesystem::path&)>& lockOf);

}  // namespace chorus
