#include "kernels/guarded_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/round_up.h"

namespace chorus {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;
// Reserved addresses, not memory: more than the memory of a machine that runs tests, but small enough for several ranks
// under a sanitizer.
constexpr size_t kReserved = size_t{128} << 30;

// Bytes of the pages of an allocation: its data, which ends at the guard page, and the guard page.
size_t pagesOf(size_t size) { return roundUp(roundUp(size, kAlignment), kPage) + kPage; }
}  // namespace

GuardedArena::GuardedArena() {
  void* base = ::mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    fail(ErrorCode::kExhausted, "--backend guarded: cannot reserve {} GiB of address space: {}", kReserved >> 30,
         std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(base);
  empty_file_ = ::memfd_create("chorus guard", MFD_CLOEXEC);
  if (empty_file_ < 0) {
    const int error = errno;
    ::munmap(base_, kReserved);
    fail(ErrorCode::kExhausted, "--backend guarded: memfd_create failed: {}", std::strerror(error));
  }
}

GuardedArena::~GuardedArena() {
  ::munmap(base_, kReserved);
  ::close(empty_file_);
}

int GuardedArena::protection() const { return open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE; }

void GuardedArena::forbid(size_t at, size_t size) {
  void* pages = ::mmap(base_ + at, size, protection(), MAP_SHARED | MAP_FIXED, empty_file_, 0);
  if (pages == MAP_FAILED)
    fail(ErrorCode::kExhausted, "--backend guarded: mmap of guard pages failed: {}", std::strerror(errno));
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
  void* pages =
      ::mmap(base_ + at, range - kPage, protection(), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (pages == MAP_FAILED) fail(ErrorCode::kExhausted, "cannot allocate {} bytes of guarded memory", size);
  forbid(at + range - kPage, kPage);
  return base_ + at + range - kPage - roundUp(size, kAlignment);
}

void GuardedArena::free(void* data, size_t size) {
  const std::lock_guard lock(mutex_);
  const size_t end = static_cast<size_t>(static_cast<std::byte*>(data) - base_) + roundUp(size, kAlignment) + kPage;
  size_t range = pagesOf(size);
  size_t at = end - range;
  forbid(at, range);
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

void GuardedArena::enter() {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0 && used_ > 0 && ::mprotect(base_, used_, PROT_READ | PROT_WRITE) != 0) {
    --open_;
    fail(ErrorCode::kExhausted, "--backend guarded: mprotect failed: {}", std::strerror(errno));
  }
}

void GuardedArena::leave() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0 && used_ > 0 && ::mprotect(base_, used_, PROT_NONE) != 0) std::terminate();
}

}  // namespace chorus
