#include "base/zero_memory.h"

#include <sys/mman.h>

#include "base/error.h"

namespace chorus {

ZeroMemory::ZeroMemory(size_t size) : size_(size) {
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(ErrorCode::kExhausted, "cannot reserve {} bytes of address space", size);
  data_ = static_cast<const std::byte*>(memory);
}

ZeroMemory::~ZeroMemory() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace chorus
