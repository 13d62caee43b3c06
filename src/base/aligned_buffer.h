// Page-aligned anonymous memory; the kernel allocates zeroed pages on first touch.
#pragma once

#include <cstddef>
#include <utility>

namespace chorus {

// Owns `size` bytes aligned to 4096. Move-only. The constructor throws Error(kExhausted).
class AlignedBuffer {
 public:
  // kHuge requests huge pages for large buffers. Use it for memory that is read often: the kernel may take
  // milliseconds to create one huge page.
  enum class Pages { kHuge, kSmall };

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size, Pages pages = Pages::kHuge);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  void* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace chorus
