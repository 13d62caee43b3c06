#include "runtime/queue_shares.h"

#include <algorithm>

#include "base/error.h"

namespace chorus {

void QueueShares::enter(std::optional<uint64_t> client, int32_t count) {
  if (most_ && queued_ + count > *most_) {
    fail(ErrorCode::kExhausted, "Maximum queue size of {} has been reached, please try again later", *most_);
  }
  if (client) {
    const auto known = of_.find(*client);
    const int32_t held = (known != of_.end() ? known->second : 0) + count;
    if (most_ && held > std::max(1, *most_ - queued_ - count)) {
      fail(ErrorCode::kExhausted,
           "Maximum queue size of {} has been reached for one client, please try again later: the remaining places are "
           "kept for other clients",
           *most_);
    }
    of_[*client] = held;
  }
  queued_ += count;
}

void QueueShares::leave(std::optional<uint64_t> client, int32_t count) noexcept {
  queued_ -= count;
  if (!client) return;
  const auto held = of_.find(*client);
  if ((held->second -= count) == 0) of_.erase(held);
}

}  // namespace chorus
