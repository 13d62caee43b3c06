#include "kernels/moved_weights.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace chorus {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPiece = size_t{16} << 20;
constexpr int kLowPriority = 10;  // nice value: a tenth of a normal thread's time, all of an idle core

size_t roundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

std::byte* alignUp(void* address) {
  const auto from = reinterpret_cast<uintptr_t>(address);
  return static_cast<std::byte*>(address) + (roundUp(from, kHugePage) - from);
}

void unmap(void* begin, std::byte* end) {
  const auto size = static_cast<size_t>(end - static_cast<std::byte*>(begin));
  if (size > 0) ::munmap(begin, size);
}
}  // namespace

MovedWeights::MovedWeights(const void* host, size_t bytes, std::vector<NumaNode> nodes)
    : nodes_(std::move(nodes)), bytes_(roundUp(bytes, kPage)) {
  if (bytes == 0 || reinterpret_cast<uintptr_t>(host) % kPage != 0) return;
  // Reserves whole huge pages from an aligned address on, so that the kernel moves them as huge pages.
  reserved_bytes_ = roundUp(bytes_, kHugePage) + kHugePage;
  void* reserved = ::mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  reserved_ = reserved;
  // With an old size of 0, mremap maps the pages of a shared mapping a second time; it fails for any other memory.
  void* again = ::mremap(const_cast<void*>(host), 0, bytes_, MREMAP_MAYMOVE | MREMAP_FIXED, alignUp(reserved_));
  if (again == MAP_FAILED) return;
  data_ = static_cast<std::byte*>(again);
}

void MovedWeights::start(int threads, bool low_priority, std::function<void(size_t)> moved) {
  if (data_ == nullptr || !threads_.empty()) return;
  moved_ = std::move(moved);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this, low_priority] { movePieces(low_priority); });
}

MovedWeights::~MovedWeights() {
  stop_ = true;
  wait();
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
}

void MovedWeights::wait() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void MovedWeights::movePieces(bool low_priority) {
  // On Linux this is the priority of the calling thread alone.
  if (low_priority) ::setpriority(PRIO_PROCESS, 0, kLowPriority);
  placePagesOn(nodes_);
  while (!stop_) {
    const size_t begin = next_.fetch_add(kPiece);
    if (begin >= bytes_) return;
    const size_t size = std::min(kPiece, bytes_ - begin);
    if (!move(begin, size)) {
      stop_ = true;
      return;
    }
    if (moved_) moved_(size);
  }
}

bool MovedWeights::move(size_t begin, size_t size) {
  const size_t room = kPiece + kHugePage;
  void* fresh = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  std::byte* copy = alignUp(fresh);
  ::madvise(copy, kPiece, MADV_HUGEPAGE);
  std::memcpy(copy, data_ + begin, size);
  const bool done = ::mprotect(copy, size, PROT_READ) == 0 &&
                    ::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + begin) != MAP_FAILED;
  // Leaves out the range that was moved away: its addresses may belong to another mapping by now.
  if (done) {
    unmap(fresh, copy);
    unmap(copy + size, static_cast<std::byte*>(fresh) + room);
  } else {
    ::munmap(fresh, room);
  }
  return done;
}

}  // namespace chorus
