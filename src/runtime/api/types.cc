#include "chorus/types.h"

#include <ostream>

namespace chorus::executor {

std::ostream& operator<<(std::ostream& os, CapacitySchedulerPolicy policy) {
  switch (policy) {
    case CapacitySchedulerPolicy::kMAX_UTILIZATION:
      return os << "MAX_UTILIZATION";
    case CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT:
      return os << "GUARANTEED_NO_EVICT";
    case CapacitySchedulerPolicy::kSTATIC_BATCH:
      break;
  }
  return os << "STATIC_BATCH";
}

std::ostream& operator<<(std::ostream& os, ContextChunkingPolicy policy) {
  return os << (policy == ContextChunkingPolicy::kEQUAL_PROGRESS ? "EQUAL_PROGRESS" : "FIRST_COME_FIRST_SERVED");
}

}  // namespace chorus::executor
