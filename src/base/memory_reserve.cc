#include "base/memory_reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace chorus {
namespace {

// The handler has no parameters, so what it works with is global.
std::atomic<void*> reserve{nullptr};
std::atomic<size_t> reserve_bytes{0};

void releaseOrThrow() {
  if (void* held = reserve.exchange(nullptr)) {
    std::free(held);
    return;
  }
  void* probe = std::malloc(reserve_bytes);
  if (probe == nullptr) throw std::bad_alloc();
  std::free(probe);
}

}  // namespace

MemoryReserve::MemoryReserve(size_t bytes) {
  reserve_bytes = bytes;
  refill();
  std::set_new_handler(releaseOrThrow);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(nullptr);
  std::free(reserve.exchange(nullptr));
}

bool MemoryReserve::refill() {
  if (reserve.load() != nullptr) return true;
  void* fresh = std::malloc(reserve_bytes);
  if (fresh == nullptr) return false;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, fresh)) std::free(fresh);
  return true;
}

}  // namespace chorus
