// How much of the waiting queue is taken, and by whom.
//
// A client may have no more requests in the queue than it leaves places free: one that sends without end fills half of
// it, two fill a third each, and whoever comes then finds room. Requests without a client id are the caller's own and
// bounded by the queue alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace chorus {

// Not thread-safe.
class QueueShares {
 public:
  explicit QueueShares(std::optional<int32_t> most) : most_(most) {}

  // `count` sequences of a client enter. Throws Error kExhausted where there is no room for them; nothing has changed
  // then.
  void enter(std::optional<uint64_t> client, int32_t count);
  void leave(std::optional<uint64_t> client, int32_t count) noexcept;

  int32_t queued() const { return queued_; }
  bool full() const { return most_ && queued_ >= *most_; }

 private:
  std::optional<int32_t> most_;
  int32_t queued_ = 0;
  std::map<uint64_t, int32_t> of_;  // clients with any
};

}  // namespace chorus
