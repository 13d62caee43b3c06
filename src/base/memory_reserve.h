// Memory that is set aside for the case that an allocation fails.
#pragma once

#include <cstddef>

namespace chorus {

// Installs a new-handler. When an allocation fails, the handler frees the reserve and the allocation is retried. If the
// reserve is already freed, the allocation is retried while a test allocation of the reserve's size succeeds; otherwise
// std::bad_alloc is thrown. Large requests thus fail, and are refused, while memory is left for small allocations that
// must not fail: destroying a JSON value allocates, and the process ends if that allocation fails. At most one
// MemoryReserve may exist, because the new-handler is global to the process.
class MemoryReserve {
 public:
  explicit MemoryReserve(size_t bytes);
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Allocates the reserve again if it was freed. Returns false when there is no memory for it.
  bool refill();
};

}  // namespace chorus
