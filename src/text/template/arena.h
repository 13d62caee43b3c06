// Memory that is freed all at once: the values of a rendering, and the tree of a compiled template.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/work_meter.h"

namespace chorus::tmpl {

// Counts the system memory that arenas and buffers hold.
class MemoryLimit {
 public:
  // meter: holds the same bytes, and must outlive this object; null: none.
  explicit MemoryLimit(size_t limit, WorkMeter* meter = nullptr) : meter_(meter), limit_(limit) {}
  // Throws TemplateError when the limit is exceeded, and what WorkMeter::hold() throws.
  void take(size_t bytes);
  void giveBack(size_t bytes) {
    if (meter_ != nullptr) meter_->giveBack(bytes);
    used_ -= bytes;
  }
  void raise(size_t by) { limit_ += by < SIZE_MAX - limit_ ? by : SIZE_MAX - limit_; }
  size_t used() const { return used_; }
  size_t limit() const { return limit_; }

 private:
  WorkMeter* meter_;
  size_t limit_, used_ = 0;
};

// An arena for objects without destructors, which the compiler checks. Freeing the arena only frees its blocks, so
// neither long chains nor cycles of values can exhaust the stack. The limit must outlive the arena.
class Arena {
 public:
  // The address sanitizer detects an access beyond an object only if the object is a block of its own.
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kOwnBlocks = true;
#elif defined(__has_feature)
  static constexpr bool kOwnBlocks = __has_feature(address_sanitizer);
#else
  static constexpr bool kOwnBlocks = false;
#endif

  explicit Arena(MemoryLimit& limit) : limit_(&limit) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* allocate(size_t bytes, size_t alignment);
  template <typename T, typename... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T), alignof(T))) T(std::forward<Args>(args)...);
  }
  // Elements are initialised by their default constructor.
  template <typename T>
  std::span<T> array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (count == 0) return {};
    if (count > SIZE_MAX / sizeof(T)) limit_->take(SIZE_MAX);
    T* const items = static_cast<T*>(allocate(count * sizeof(T), alignof(T)));
    for (size_t i = 0; i < count; ++i) new (items + i) T();
    return {items, count};
  }
  template <typename T>
  std::span<T> copy(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (items.empty()) return {};
    T* const to = static_cast<T*>(allocate(items.size_bytes(), alignof(T)));
    std::uninitialized_copy(items.begin(), items.end(), to);
    return {to, items.size()};
  }
  std::string_view copy(std::string_view text);
  // Returns the bytes of text followed by room for `more` bytes, which the caller fills. Works in place if text was the
  // last allocation and there is room; otherwise copies text.
  char* extend(std::string_view text, size_t more);
  // Takes ownership of bytes from malloc that the limit has already counted.
  void adopt(void* memory, size_t bytes);

  // Bytes of system memory.
  size_t bytes() const { return bytes_; }

 private:
  void addBlock(size_t bytes);

  MemoryLimit* limit_;
  std::vector<void*> blocks_;
  char* begin_ = nullptr;  // start of the block in use
  char* at_ = nullptr;
  char* end_ = nullptr;
  size_t bytes_ = 0;
  size_t next_block_ = 1024;
};

}  // namespace chorus::tmpl
