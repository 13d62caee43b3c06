// Memory whose addresses are not accessible: code that needs it translates them first.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace chorus {

// Every allocation has a device address, which always faults, and a host address, at which its memory lies. The two
// differ by a constant, so an address inside an allocation can be translated too. At its host address, every allocation
// ends at a guard page, and freed memory faults. Thread-safe.
class GuardedArena {
 public:
  // Throws Error(kExhausted).
  GuardedArena();
  ~GuardedArena();
  GuardedArena(const GuardedArena&) = delete;
  GuardedArena& operator=(const GuardedArena&) = delete;

  // Returns a device address of zeroed memory, 64-byte aligned. size > 0. Throws Error(kExhausted).
  void* allocate(size_t size);
  // device, size: as in allocate(). Ends the process with a message if the kernel has no mapping left.
  void free(void* device, size_t size);

  // Ends the process with a message if `device` is not null and not an address of this arena. Null stays null.
  template <typename T>
  T* toHost(T* device) const {
    return device == nullptr ? nullptr : reinterpret_cast<T*>(host_ + offsetOf(device));
  }

 private:
  size_t offsetOf(const volatile void* device) const;
  size_t takeRange(size_t size);

  std::byte* device_ = nullptr;  // the first device address
  std::byte* host_ = nullptr;    // the first host address
  std::mutex mutex_;
  size_t used_ = 0;                // bytes that have ever been allocated
  std::map<size_t, size_t> free_;  // offset -> size of ranges below used_, never adjacent
};

}  // namespace chorus
