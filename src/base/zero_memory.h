// Address space that reads as zeros and takes no memory until it is read.
#pragma once

#include <cstddef>
#include <span>

namespace chorus {

// Page-aligned and read-only.
class ZeroMemory {
 public:
  // Throws Error(kExhausted) when there is not so much address space.
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
