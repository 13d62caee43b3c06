// Buffers that collect texts and lists piece by piece, counted in the memory and the work of their rendering.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "text/template/runtime.h"

namespace chorus::tmpl {

template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::max_align_t));

 public:
  explicit Buffer(Runtime& rt) : rt_(rt) {}
  ~Buffer() {
    std::free(data_);
    rt_.memory().giveBack(capacity_ * sizeof(T));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Valid until the next change.
  std::span<T> items() { return {data_, size_}; }
  std::string_view view() const
    requires(sizeof(T) == 1)
  {
    return {data_, size_};
  }

  void reserve(size_t capacity) {
    if (capacity > capacity_) reallocate(capacity);
  }
  void push(const T& item) {
    rt_.charge(sizeof(T));
    if (size_ == capacity_) grow(1);
    data_[size_++] = item;
  }
  void append(std::span<const T> items)
    requires(sizeof(T) > 1)
  {
    copy(items);
  }
  void append(std::string_view text)
    requires(sizeof(T) == 1)
  {
    copy({text.data(), text.size()});
  }
  void append(size_t count, const T& item) {
    if (count > SIZE_MAX / sizeof(T)) rt_.memory().take(SIZE_MAX);
    rt_.charge(count * sizeof(T));
    if (count > capacity_ - size_) grow(count);
    for (size_t i = 0; i < count; ++i) data_[size_++] = item;
  }
  void clear() { size_ = 0; }
  // size must be at most size().
  void truncate(size_t size) { size_ = size; }

  // Returns the collected items, which stay valid until the rendering ends, and empties the buffer.
  std::span<const T> finish() {
    constexpr size_t kCopied = 1024;
    Arena& arena = sizeof(T) == 1 ? rt_.texts() : rt_.objects();
    const size_t size = std::exchange(size_, 0);
    if (size * sizeof(T) <= kCopied) return arena.copy(std::span<const T>(data_, size));
    if (capacity_ > size) {
      // Shrinking a block should always succeed; if it fails, the larger block is kept.
      if (void* const fitted = std::realloc(static_cast<void*>(data_), size * sizeof(T)); fitted != nullptr) {
        data_ = static_cast<T*>(fitted);
        rt_.memory().giveBack((capacity_ - size) * sizeof(T));
        capacity_ = size;
      }
    }
    arena.adopt(data_, capacity_ * sizeof(T));
    capacity_ = 0;
    return {std::exchange(data_, nullptr), size};
  }
  Value text()
    requires(sizeof(T) == 1)
  {
    const std::span<const char> bytes = finish();
    return Value::ofText({bytes.data(), bytes.size()});
  }

 private:
  void copy(std::span<const T> items) {
    rt_.charge(items.size_bytes());
    if (items.empty()) return;
    if (items.size() > capacity_ - size_) grow(items.size());
    std::memcpy(static_cast<void*>(data_ + size_), items.data(), items.size_bytes());
    size_ += items.size();
  }
  void grow(size_t more) {
    if (more > SIZE_MAX / (2 * sizeof(T)) - size_) rt_.memory().take(SIZE_MAX);
    constexpr size_t kFirst = sizeof(T) >= 64 ? 1 : 64 / sizeof(T);
    reallocate(std::max({kFirst, size_ + more, capacity_ + capacity_ / 2}));
  }
  void reallocate(size_t capacity) {
    if (capacity > SIZE_MAX / sizeof(T)) rt_.memory().take(SIZE_MAX);
    // During the copy both the old and the new block are held.
    rt_.charge(size_ * sizeof(T));
    rt_.memory().take(capacity * sizeof(T));
    T* const data = static_cast<T*>(std::malloc(capacity * sizeof(T)));
    if (data == nullptr) {
      rt_.memory().giveBack(capacity * sizeof(T));
      throw std::bad_alloc();
    }
    if (size_ > 0) std::memcpy(static_cast<void*>(data), data_, size_ * sizeof(T));
    std::free(data_);
    rt_.memory().giveBack(capacity_ * sizeof(T));
    data_ = data;
    capacity_ = capacity;
  }

  Runtime& rt_;
  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

using TextBuffer = Buffer<char>;
using ValueBuffer = Buffer<Value>;

}  // namespace chorus::tmpl
