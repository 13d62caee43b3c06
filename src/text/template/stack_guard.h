// A limit on the stack that recursion over untrusted structure takes, in bytes, whatever a frame's size is in this
// build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chorus::tmpl {

// Threads that serve requests have 256 KB; half of it is for what calls this and for the leaves below.
inline constexpr size_t kMaxStackBytes = size_t{128} << 10;

class StackGuard {
 public:
  StackGuard() : base_(reinterpret_cast<uintptr_t>(__builtin_frame_address(0))) {}
  bool exhausted() const {
    const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    return (base_ > here ? base_ - here : here - base_) > kMaxStackBytes;
  }

 private:
  uintptr_t base_;
};

}  // namespace chorus::tmpl
