// Counts allocations and makes allocations fail, for tests of memory bounds and of exhausted memory.
//
// In a program that links malloc_hook.cc, malloc, calloc, realloc, aligned_alloc, posix_memalign and free are replaced,
// and with them operator new and delete and the allocations of C libraries. Under a sanitizer, whose allocator cannot
// be replaced, the counts come from the sanitizer's hooks and no allocation fails.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHORUS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHORUS_SANITIZED 1
#endif
#endif

namespace chorus::test {

// Counts the allocations of all threads during its lifetime. Only one may exist at a time.
class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  // Bytes held now minus bytes held at construction; negative when more was freed than allocated. Sizes are as rounded
  // by the allocator.
  int64_t heldBytes() const;
  // The maximum of heldBytes() so far; at least 0.
  int64_t peakBytes() const;
  uint64_t allocations() const;

 private:
  int64_t before_;
  uint64_t count_before_;
};

// During its lifetime every nth allocation of all threads fails: malloc returns null, so operator new throws
// std::bad_alloc. Threads inside an ExemptFromFailure are not affected. Only one may exist at a time; n > 0.
class FailingAllocations {
 public:
  // skip: number of allocations that succeed before counting starts, so that a test can shift the failures.
  explicit FailingAllocations(uint64_t n, uint64_t skip = 0);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
  // Number of allocations that have failed so far.
  uint64_t failures() const;
  // False under a sanitizer.
  static bool supported();
};

// During its lifetime allocations of this thread do not fail. Scopes nest.
class ExemptFromFailure {
 public:
  ExemptFromFailure();
  ~ExemptFromFailure();
  ExemptFromFailure(const ExemptFromFailure&) = delete;
  ExemptFromFailure& operator=(const ExemptFromFailure&) = delete;
};

}  // namespace chorus::test
