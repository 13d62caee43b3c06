#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include "base/error.h"

namespace chorus {

AlignedBuffer::AlignedBuffer(size_t size, Pages pages) : size_(size) {
  if (size == 0) return;
  data_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    fail(ErrorCode::kExhausted, "cannot allocate {} bytes of memory", size);
  }
  if (pages == Pages::kHuge && size >= (size_t{4} << 20)) ::madvise(data_, size, MADV_HUGEPAGE);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace chorus
