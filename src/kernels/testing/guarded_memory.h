// Memory for kernel tests that ends at an inaccessible page, so that a read or write past its end crashes.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>

namespace chorus::kernel_test {

class Guarded {
 public:
  // Allocates `bytes` bytes of zeros.
  explicit Guarded(size_t bytes) : size_((bytes + kPage - 1) / kPage * kPage + kPage) {
    begin_ =
        static_cast<std::byte*>(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(begin_), MAP_FAILED);
    EXPECT_EQ(::mprotect(begin_ + size_ - kPage, kPage, PROT_NONE), 0);
    data_ = begin_ + size_ - kPage - bytes;
  }
  ~Guarded() { ::munmap(begin_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  std::byte* data() const { return data_; }

 private:
  static constexpr size_t kPage = 4096;
  size_t size_;
  std::byte* begin_;
  std::byte* data_;
};

}  // namespace chorus::kernel_test
