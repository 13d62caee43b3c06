// Memory that is accessible only while it is open.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace chorus {

// All memory is in one contiguous range of addresses, so that opening and closing are one system call each. Every
// allocation ends at a guard page, which faults even while the arena is open. Freed memory also faults while the arena
// is open. Thread-safe.
class GuardedArena {
 public:
  // Throws Error(kExhausted).
  GuardedArena();
  ~GuardedArena();
  GuardedArena(const GuardedArena&) = delete;
  GuardedArena& operator=(const GuardedArena&) = delete;

  // Zeroed, 64-byte aligned. size > 0. Throws Error(kExhausted).
  void* allocate(size_t size);
  void free(void* data, size_t size);

  // The arena is accessible from all threads while at least one Open exists.
  class Open {
   public:
    explicit Open(GuardedArena& arena) : arena_(arena) { arena_.enter(); }
    ~Open() { arena_.leave(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    GuardedArena& arena_;
  };

 private:
  void enter();
  void leave();
  int protection() const;
  // Replaces [at, at + size) by pages that always fault.
  void forbid(size_t at, size_t size);
  size_t takeRange(size_t size);

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  int empty_file_ = -1;            // 0 bytes long: pages mapped from it fault whatever their protection is
  size_t used_ = 0;                // bytes from base_ that have ever been allocated
  std::map<size_t, size_t> free_;  // offset -> size of ranges below used_, never adjacent
  int open_ = 0;
};

}  // namespace chorus
