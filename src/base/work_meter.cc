#include "base/work_meter.h"

#include <algorithm>

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

}  // namespace chorus
