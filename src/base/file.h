// Files: bounded reads, read-only maps, and writes that appear whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace chorus {

// Whole contents. Throws kNotFound, or kCorrupt when the file is larger than max_bytes.
std::string readFile(const std::filesystem::path& path, size_t max_bytes);

// Writes to a sibling temporary, syncs and renames. Throws kExhausted when the disk is full; the old file stays.
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
