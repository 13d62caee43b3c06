// The directory of a zip archive whose entries are stored, not compressed: where each entry's bytes lie in the archive.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace chorus {

struct ZipEntry {
  std::string_view name;             // into the archive
  std::span<const std::byte> bytes;  // likewise
};

// Entries in the order of the central directory, plain zip or zip64. Nothing is copied and memory is bounded by the
// archive's size. Throws Error(kCorrupt) for a directory that contradicts itself, its local headers or the archive's
// size, entries that overlap, and names that differ by case alone; Error(kUnsupported) for compressed, encrypted or
// split archives. Checksums are not read: PyTorch writes archives without them.
std::vector<ZipEntry> readZipDirectory(std::span<const std::byte> archive, std::string_view source);

}  // namespace chorus
