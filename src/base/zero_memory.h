// Address space that reads as zeros; a page takes memory only once it is read.
#pragma once

#include <cstddef>
#include <span>

namespace chorus {

// Page-aligned and read-only.
class ZeroMemory {
 public:
  // size in bytes. Throws Error(kExhausted) when the address space is too small.
  explicit ZeroMemory(size_t size);
  ~ZeroMemory();
  ZeroMemory(const ZeroMemory&) = delete;
  ZeroMemory& operator=(const ZeroMemory&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_;
};

}  // namespace chorus
