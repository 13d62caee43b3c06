// Memory that is set aside for the moment in which no more can be had.
#pragma once

#include <cstddef>

namespace chorus {

// While one exists, an allocation that fails takes the reserve back and is tried again; without the reserve it is tried
// again as long as a probe of the reserve's size succeeds, and throws std::bad_alloc otherwise. So large requests fail,
// and are refused, while there is still memory for what must not fail: destroying a JSON value allocates, and ends the
// process where it cannot. At most one at a time: the handler of failed allocations belongs to the process.
class MemoryReserve {
 public:
  explicit MemoryReserve(size_t bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Sets aside again what was taken back. False when it was missing and there is no memory for it.
  bool refill();
};

}  // namespace chorus
