// A temporary file that has no name, for data that is too large for memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/descriptor.h"

namespace chorus {

// Makes an empty file, for reading and writing, in the directory for temporary files ($TMPDIR or /tmp). No other
// process can open it, and its space is free again when the descriptor is closed. purpose: what it is for, in errors.
// Throws Error(kExhausted).
Descriptor makeUnnamedFile(std::string_view purpose);

// A file of makeUnnamedFile() with a given size, mapped for reading.
class UnnamedFile {
 public:
  // A file of `size` zeros, which take no space on the disk yet. Throws Error(kExhausted).
  UnnamedFile(uint64_t size, std::string_view purpose);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  // The contents, mapped read-only; the kernel may write its pages to the disk.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Replaces the bytes from `offset` on. They must lie inside the file. Throws Error(kExhausted).
  void write(uint64_t offset, std::span<const std::byte> bytes, std::string_view purpose);

 private:
  Descriptor file_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace chorus
