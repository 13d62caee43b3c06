#include "support/malloc_hook.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace chorus::test {
namespace {

std::atomic<int64_t> g_held{0}, g_peak{0};
std::atomic<uint64_t> g_count{0};
std::atomic<uint64_t> g_fail_every{0}, g_until_failure{0}, g_failures{0};
// Thread-local, because malloc has no argument that could carry it.
thread_local int t_exempt = 0;

void grew(size_t bytes) {
  g_count.fetch_add(1, std::memory_order_relaxed);
  const int64_t held =
      g_held.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed) + static_cast<int64_t>(bytes);
  int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (held > peak && !g_peak.compare_exchange_weak(peak, held, std::memory_order_relaxed)) {
  }
}

void shrank(size_t bytes) { g_held.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed); }

}  // namespace

AllocationWatch::AllocationWatch() : before_(g_held.load()), count_before_(g_count.load()) { g_peak.store(before_); }
AllocationWatch::~AllocationWatch() = default;
int64_t AllocationWatch::heldBytes() const { return g_held.load() - before_; }
int64_t AllocationWatch::peakBytes() const { return g_peak.load() - before_; }
uint64_t AllocationWatch::allocations() const { return g_count.load() - count_before_; }

FailingAllocations::FailingAllocations(uint64_t n, uint64_t skip) {
  g_failures.store(0);
  g_until_failure.store(n + skip);
  g_fail_every.store(n);
}
FailingAllocations::~FailingAllocations() { g_fail_every.store(0); }
uint64_t FailingAllocations::failures() const { return g_failures.load(); }

ExemptFromFailure::ExemptFromFailure() { ++t_exempt; }
ExemptFromFailure::~ExemptFromFailure() { --t_exempt; }

#ifdef CHORUS_SANITIZED

bool FailingAllocations::supported() { return false; }

}  // namespace chorus::test

extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, size_t),
                                              void (*free_hook)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* pointer);
}

namespace {
const int g_installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t size) { chorus::test::grew(size); },
    [](const volatile void* pointer) { chorus::test::shrank(__sanitizer_get_allocated_size(pointer)); });
}  // namespace

#else

bool FailingAllocations::supported() { return true; }

namespace {

bool mayAllocate() {
  const uint64_t every = g_fail_every.load(std::memory_order_relaxed);
  if (every == 0 || t_exempt > 0) return true;
  if (g_until_failure.fetch_sub(1, std::memory_order_relaxed) != 1) return true;
  g_until_failure.store(every, std::memory_order_relaxed);
  g_failures.fetch_add(1, std::memory_order_relaxed);
  errno = ENOMEM;
  return false;
}

void* counted(void* pointer) {
  if (pointer != nullptr) grew(malloc_usable_size(pointer));
  return pointer;
}

}  // namespace
}  // namespace chorus::test

// The C library's own allocation functions, which the replacements below call.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* pointer, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* pointer);

void* malloc(size_t size) {
  using namespace chorus::test;
  return mayAllocate() ? counted(__libc_malloc(size)) : nullptr;
}

void* calloc(size_t count, size_t size) {
  using namespace chorus::test;
  return mayAllocate() ? counted(__libc_calloc(count, size)) : nullptr;
}

void* realloc(void* pointer, size_t size) {
  using namespace chorus::test;
  if (!mayAllocate()) return nullptr;
  const size_t before = pointer != nullptr ? malloc_usable_size(pointer) : 0;
  void* const moved = __libc_realloc(pointer, size);
  if (moved == nullptr && size > 0) return nullptr;
  shrank(before);
  return counted(moved);
}

void* memalign(size_t alignment, size_t size) {
  using namespace chorus::test;
  return mayAllocate() ? counted(__libc_memalign(alignment, size)) : nullptr;
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** pointer, size_t alignment, size_t size) {
  void* const memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *pointer = memory;
  return 0;
}

void free(void* pointer) {
  if (pointer != nullptr) chorus::test::shrank(malloc_usable_size(pointer));
  __libc_free(pointer);
}
}

#endif
