// Files: bounded reads, read-only maps, and atomic writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct stat;  // NOLINT(readability-identifier-naming): the name of the C library

namespace chorus {

// Whole contents of a regular file. Throws kNotFound, or kCorrupt when the file is larger than max_bytes.
std::string readFile(const std::filesystem::path& path, size_t max_bytes);
// Whole contents of the regular file `fd`, whose read position must be 0. `path` appears only in error messages.
std::string readDescriptor(int fd, const std::filesystem::path& path, size_t max_bytes);

// Identifies one state of a file: identity, size and times. changed_ns is the change time (ctime), which programs can't
// set, so an edit in place always changes the stamp, unless it falls into the same tick of the file system's clock
// (kFileClockTickNs) as the previous edit.
struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
inline constexpr int64_t kFileClockTickNs = 20'000'000;

// Stamp of the file at `path`, after links; nullopt when there is none. Throws Error when it cannot be examined.
std::optional<FileStamp> stampOf(const std::filesystem::path& path);
FileStamp stampOfStatus(const struct stat& status);
// Nanoseconds since the file's last change (changed_ns), by the system's real-time clock.
int64_t ageNs(const FileStamp& stamp);

// Writes to a temporary file in the same directory, syncs it and renames it to `path`. If `path` is a link, replaces
// the file that it leads to; a device or a pipe is written to directly. Throws kExhausted, for example when the disk is
// full; the old file then stays.
void writeFileAtomically(const std::filesystem::path& path, std::string_view contents);

// A read-only map of a whole file. Pages are file-backed: they cost no anonymous memory and are shared between
// processes. The descriptor is closed after mapping; a file truncated by others while mapped raises SIGBUS, so
// engine and model files are replaced by rename, never rewritten in place.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws kNotFound, or kCorrupt when the file is empty or not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  // Asks the kernel to read the file ahead; returns at once.
  void willNeed() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace chorus
