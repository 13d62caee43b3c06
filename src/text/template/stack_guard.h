// Limits the stack that recursion over untrusted input takes. The limit is in bytes, because the size of a frame
// depends on the build.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chorus::tmpl {

// Threads that serve requests have 256 KB of stack; the other half is for the callers and for functions called last.
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
