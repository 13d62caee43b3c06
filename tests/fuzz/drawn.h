// Builds structured input from a fuzzer's bytes. Every choice consumes a byte, so that mutating the bytes mutates the
// structure. After the last byte every choice is the first one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace chorus::test {

class Drawn {
 public:
  Drawn(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool ended() const { return at_ >= size_; }
  uint8_t byte() { return ended() ? 0 : data_[at_++]; }
  // A number below count, which is at most 65536.
  size_t below(size_t count) {
    const size_t value = count > 256 ? static_cast<size_t>(byte()) << 8 | byte() : byte();
    return value % count;
  }
  bool chance() { return (byte() & 1) != 0; }
  template <typename T>
  const T& oneOf(const std::vector<T>& items) {
    return items[below(items.size())];
  }
  // The remaining bytes, unchanged.
  std::string rest() {
    std::string text(reinterpret_cast<const char*>(data_) + at_, size_ - at_);
    at_ = size_;
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

}  // namespace chorus::test
