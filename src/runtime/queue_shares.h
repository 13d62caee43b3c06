// Limits the number of waiting sequences, in total and per client.
//
// A client may occupy at most as many places of the queue as it leaves free, but always one. A client that sends
// without end therefore fills half of the queue, two such clients a third each, and a newcomer still finds room.
// Sequences without a client id are limited by the size of the queue alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace chorus {

// Not thread-safe.
class QueueShares {
 public:
  explicit QueueShares(std::optional<int32_t> most) : most_(most) {}

  // Adds `count` sequences of a client. Throws Error(kExhausted) if there is no room for all; nothing has changed then.
  void enter(std::optional<uint64_t> client, int32_t count);
  void leave(std::optional<uint64_t> client, int32_t count) noexcept;

  int32_t queued() const { return queued_; }
  bool full() const { return most_ && queued_ >= *most_; }

 private:
  std::optional<int32_t> most_;
  int32_t queued_ = 0;
  std::map<uint64_t, int32_t> of_;  // sequences per client that has any
};

}  // namespace chorus
