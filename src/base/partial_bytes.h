// The bytes of a file, of which only those that a parser asks for need to be read.
#pragma once

#include <cassert>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

namespace chorus {

// A view: the memory belongs to the caller.
class PartialBytes {
 public:
  // need(at, size) must make the bytes [at, at + size) of `memory` valid, or throw. Without it, all are valid already.
  using Need = std::function<void(size_t at, size_t size)>;
  explicit PartialBytes(std::span<const std::byte> memory, Need need = nullptr)
      : memory_(memory), need_(std::move(need)) {}

  // Size of the file.
  size_t size() const { return memory_.size(); }
  // Memory of the whole file, in which only the bytes that were read are valid.
  std::span<const std::byte> memory() const { return memory_; }
  // Returns the bytes [at, at + size), which must lie within the file.
  std::span<const std::byte> read(size_t at, size_t size) const {
    assert(at <= memory_.size() && size <= memory_.size() - at);
    if (need_) need_(at, size);
    return memory_.subspan(at, size);
  }
  // The bytes [at, at + size), which must lie within the file, as a file of their own.
  PartialBytes part(size_t at, size_t size) const {
    assert(at <= memory_.size() && size <= memory_.size() - at);
    Need need;
    if (need_) need = [whole = need_, at](size_t from, size_t count) { whole(at + from, count); };
    return PartialBytes(memory_.subspan(at, size), std::move(need));
  }

 private:
  std::span<const std::byte> memory_;
  Need need_;
};

}  // namespace chorus
