// Reads zip archives: the directory first, then the bytes of one entry or of all as they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/partial_bytes.h"

namespace chorus {

struct ZipEntry {
  std::string_view name;     // view into the archive
  uint64_t size = 0;         // bytes
  uint64_t stored_size = 0;  // bytes in the archive; differs from size only if the entry is compressed
  uint64_t header = 0;       // offset of its local header
  uint32_t crc32 = 0;        // of its bytes, according to the directory
  bool deflated = false;     // compressed: its bytes are a raw deflate stream (formats/inflate.h)
};

enum class ZipMethods { kStored, kStoredOrDeflated };

// Plain zip and zip64. No entry's bytes are copied, and memory is bounded by the archive's size. Checksums are not
// compared, because PyTorch writes archives without them. All functions throw Error:
//   kCorrupt      a directory that contradicts itself or the archive's size; names that differ only in case; an entry
//                 that contradicts the directory; overlapping entries
//   kUnsupported  an encrypted or split archive, or an entry that is compressed by a method that is not accepted
class ZipArchive {
 public:
  // Reads the directory only. The memory behind `bytes` must outlive the object; source names it in errors.
  ZipArchive(PartialBytes bytes, std::string_view source, ZipMethods methods = ZipMethods::kStored);

  // All entries, in the order of the archive's directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Reads one entry. Returns a view into the archive, of stored_size bytes.
  std::span<const std::byte> read(const ZipEntry& entry) const;
  // Reads all entries, in their order, and checks that they do not overlap.
  std::vector<std::span<const std::byte>> readAll() const;

 private:
  struct Directory;
  [[noreturn]] void corrupt(std::string_view reason) const;
  template <typename T>
  T get(uint64_t at) const;
  bool has(uint64_t at, uint64_t size) const { return at <= bytes_.size() && size <= bytes_.size() - at; }
  std::string_view text(uint64_t at, size_t size) const;
  uint64_t findEnd() const;
  Directory findDirectory() const;
  Directory zip64Directory(uint64_t record, uint64_t locator, const Directory& plain) const;
  ZipEntry centralEntry(uint64_t& at, uint64_t end) const;
  void widen(uint64_t at, uint64_t size, ZipEntry& entry) const;
  uint64_t dataBegin(const ZipEntry& entry) const;

  PartialBytes bytes_;
  std::string source_;
  ZipMethods methods_;
  uint64_t directory_begin_ = 0;  // no entry reaches beyond it
  std::vector<ZipEntry> entries_;
};

}  // namespace chorus
