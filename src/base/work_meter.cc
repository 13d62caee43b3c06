#include "base/work_meter.h"

#include <algorithm>
#include <new>

namespace chorus {

void WorkMeter::setNextLook() {
  const uint64_t step = kLookEvery < kUnlimited - spent_ ? kLookEvery : kUnlimited - spent_;
  next_look_ = spent_ + step;
  // look() must run at the first byte beyond the limit, even if that is before the next periodic check.
  if (limits_.work < kUnlimited) next_look_ = std::min(next_look_, limits_.work + 1);
}

void WorkMeter::look() {
  if (spent_ > limits_.work) {
    throw WorkStopped(
        WorkStopped::Reason::kWork, ErrorCode::kInvalidArgument,
        fmt::format("processing the input exceeds the limit of {} bytes of work; make it shorter or simpler",
                    limits_.work));
  }
  if (cancelled()) throw WorkStopped(WorkStopped::Reason::kCancelled, ErrorCode::kExhausted, "cancelled");
  if (Clock::now() >= limits_.deadline) {
    throw WorkStopped(WorkStopped::Reason::kDeadline, ErrorCode::kExhausted,
                      "the input was not prepared within the time limit");
  }
  setNextLook();
}

void WorkMeter::setMemory(WorkMemory* memory) {
  memory_ = memory;
  granted_ = memory != nullptr ? kFreeMemory : std::numeric_limits<size_t>::max();
}

void WorkMeter::growGrant(size_t bytes) {
  if (memory_ == nullptr || bytes > std::numeric_limits<size_t>::max() - held_ - kFreeMemory) throw std::bad_alloc();
  const size_t wanted = (held_ + bytes + kFreeMemory - 1) / kFreeMemory * kFreeMemory;
  memory_->grant(wanted);
  granted_ = wanted;
}

}  // namespace chorus
