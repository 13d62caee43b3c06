// Files: bounded reads, read-only maps, and writes that appear whole or not at all.
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

// Whole contents. Throws kNotFound, or kCorrupt when the file is larger than max_bytes.
std::string readFile(const std::filesystem::path& path, size_t max_bytes);
// The same of a regular file that is open at its beginning; path names it in errors.
std::string readDescriptor(int fd, const std::filesystem::path& path, size_t max_bytes);

// What tells a state of a file from others: identity, size, times. Times include the change time, which programs can't
// set, so an edit in place is always noticed, unless it falls into the same tick of the file system's clock as the one
// before (kFileClockTick).
struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
inline constexpr int64_t kFileClockTickNs = 20'000'000;

// Of what the path leads to. nullopt where there is nothing.
std::optional<FileStamp> stampOf(const std::filesystem::path& path);
FileStamp stampOfStatus(const struct stat& status);
// How long ago the stamp's file changed, by the clock that file systems stamp with.
int64_t ageNs(const FileStamp& stamp);

// Writes to a sibling temporary, syncs and renames. Throws kExhausted when the disk is full; the old file stays.
// Of a link, the file that it leads to; a device or a pipe is written to as it is.
void writeFileAtomically(const std::filesystem::path& path, std::string_view contents);

// A read-only map of a whole file. Pages are file-backed: they cost no anonymous memory and are shared between
// processes. The descriptor is closed after mapping; a file truncated by others while mapped raises SIGBUS, so
// engine and model files are replaced by rename, never rewritten in place.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws kNotFound / kCorrupt (not a regular file, empty).
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
