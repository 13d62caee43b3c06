#include "kernels/guarded_arena.h"

#include <sys/mman.h>

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/round_up.h"

namespace chorus {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;
// Size of the range of device addresses, and of that of host addresses. They are reserved and take no memory. A
// sanitizer has room for those of several ranks.
constexpr size_t kReserved = size_t{128} << 30;

// Bytes of the pages of an allocation: its data, which ends at the guard page, and the guard page.
size_t pagesOf(size_t size) { return roundUp(roundUp(size, kAlignment), kPage) + kPage; }
}  // namespace

GuardedArena::GuardedArena() {
  void* base = ::mmap(nullptr, 2 * kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    fail(ErrorCode::kExhausted, "--backend guarded: cannot reserve {} GiB of address space: {}", 2 * kReserved >> 30,
         std::strerror(errno));
  }
  device_ = static_cast<std::byte*>(base);
  host_ = device_ + kReserved;
}

GuardedArena::~GuardedArena() { ::munmap(device_, 2 * kReserved); }

size_t GuardedArena::offsetOf(const volatile void* device) const {
  // One subtraction finds addresses below and above the range.
  const size_t offset = reinterpret_cast<uintptr_t>(device) - reinterpret_cast<uintptr_t>(device_);
  if (offset >= kReserved) {
    std::fprintf(stderr, "--backend guarded: %p is not an address of this backend's memory\n",
                 const_cast<const void*>(device));
    std::abort();
  }
  return offset;
}

size_t GuardedArena::takeRange(size_t size) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [at, length] = *it;
    if (length < size) continue;
    free_.erase(it);
    if (length > size) free_.emplace(at + size, length - size);
    return at;
  }
  if (size > kReserved - used_) fail(ErrorCode::kExhausted, "cannot allocate {} bytes of guarded memory", size);
  const size_t at = used_;
  used_ += size;
  return at;
}

void* GuardedArena::allocate(size_t size) {
  assert(size > 0);
  if (size > kReserved / 2) fail(ErrorCode::kExhausted, "cannot allocate {} bytes of guarded memory", size);
  const std::lock_guard lock(mutex_);
  const size_t range = pagesOf(size);
  const size_t at = takeRange(range);
  if (::mprotect(host_ + at, range - kPage, PROT_READ | PROT_WRITE) != 0) {
    fail(ErrorCode::kExhausted, "cannot allocate {} bytes of guarded memory: {}", size, std::strerror(errno));
  }
  return device_ + at + range - kPage - roundUp(size, kAlignment);
}

void GuardedArena::free(void* device, size_t size) {
  const std::lock_guard lock(mutex_);
  size_t range = pagesOf(size);
  size_t at = offsetOf(device) + roundUp(size, kAlignment) + kPage - range;
  // Inaccessible pages replace them: their memory returns to the system, and they are zero when they are used again.
  if (::mmap(host_ + at, range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    std::fprintf(stderr, "--backend guarded: cannot free memory: %s\n", std::strerror(errno));
    std::abort();
  }
  auto next = free_.lower_bound(at);
  if (next != free_.end() && next->first == at + range) {
    range += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == at) {
    std::prev(next)->second += range;
  } else {
    free_.emplace(at, range);
  }
}

}  // namespace chorus
