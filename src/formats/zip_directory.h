// Reads the directory of an uncompressed zip archive: the name and the bytes of each entry.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace chorus {

struct ZipEntry {
  std::string_view name;             // view into the archive
  std::span<const std::byte> bytes;  // view into the archive
};

// Returns the entries in the order of the central directory, for plain zip and zip64. No entry's bytes are copied, and
// memory is bounded by the archive's size. Checksums are ignored, because PyTorch writes archives without them. Throws
// Error:
//   kCorrupt      a directory that contradicts itself, its local headers or the archive's size; overlapping entries;
//                 names that differ only in case
//   kUnsupported  a compressed, encrypted or split archive
std::vector<ZipEntry> readZipDirectory(std::span<const std::byte> archive, std::string_view source);

}  // namespace chorus
