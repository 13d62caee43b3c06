// Counts what a program allocates, and lets allocations fail: for tests of memory bounds and of full memory.
//
// A program that links malloc_hook.cc has its malloc, calloc, realloc, aligned_alloc, posix_memalign and free (and so
// operator new and delete, and those of C libraries) go through it. Under a sanitizer, whose allocator cannot be
// replaced, the counts come from the sanitizer's own hooks and nothing ever fails.
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

// What all threads together allocate while it lives. One at a time.
class AllocationWatch {
 public:
  AllocationWatch();
  ~AllocationWatch();
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;

  // Bytes held now beyond those held at the beginning; negative when more was freed than allocated. The sizes are those
  // that the allocator rounded to.
  int64_t heldBytes() const;
  // The most that heldBytes() has been; at least 0.
  int64_t peakBytes() const;
  uint64_t allocations() const;

 private:
  int64_t before_;
  uint64_t count_before_;
};

// While it lives, every nth allocation of all threads fails: malloc returns null, so operator new throws
// std::bad_alloc. A thread inside an ExemptFromFailure is left alone. One at a time; n > 0.
class FailingAllocations {
 public:
  // skip: allocations that succeed before the count begins, so that a test can move the failures about.
  explicit FailingAllocations(uint64_t n, uint64_t skip = 0);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
  // Allocations that have failed so far.
  uint64_t failures() const;
  // False under a sanitizer.
  static bool supported();
};

// Allocations of this thread do not fail while it lives; scopes nest.
class ExemptFromFailure {
 public:
  ExemptFromFailure();
  ~ExemptFromFailure();
  ExemptFromFailure(const ExemptFromFailure&) = delete;
  ExemptFromFailure& operator=(const ExemptFromFailure&) = delete;
};

}  // namespace chorus::test
