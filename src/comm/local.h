// Communicators of ranks in one process. Each rank is a thread with its own backend; values are exchanged through host
// memory of the group.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/aligned_buffer.h"
#include "comm/communicator.h"

namespace chorus {

class LocalGroup {
 public:
  // longest_row: maximum whole.cols of allGatherColumns, in float32. spin_us: microseconds that a collective spins
  // while it waits for the other ranks, before it sleeps; use 0 if the process has more threads than cores.
  LocalGroup(int32_t size, int64_t longest_row, int spin_us);
  ~LocalGroup();
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  // Communicator of `rank` for device memory of `backend`. It must not outlive this group or `backend`.
  std::unique_ptr<Communicator> communicator(int32_t rank, Backend& backend);

  // Called by a rank that cannot continue: the other ranks throw from the call in which they wait, or from their next
  // call. Thread-safe.
  void abort();
  // Makes the group usable again after abort(). No rank may be inside a call.
  void reset();

 private:
  class End;
  // Staging buffer from one rank to another; holds one piece of at most piece_ bytes.
  struct Channel {
    AlignedBuffer staging;
    bool full = false;  // sent and not yet received
    size_t bytes = 0;
  };

  std::byte* slot(int32_t rank) { return slots_.as<std::byte>() + static_cast<size_t>(rank) * piece_; }
  std::byte* result() { return slot(size_); }
  Channel& channel(int32_t from, int32_t to) { return channels_[static_cast<size_t>(from * size_ + to)]; }
  // Barrier: returns when all ranks have called it.
  void meet();
  void awaitChannel(const Channel& channel, bool full);
  void setChannel(Channel& channel, bool full);
  // Sums all ranks' slots, over this rank's share of the elements [0, count), into result().
  template <typename T>
  void sumShare(int32_t rank, int64_t count);

  const int32_t size_;
  const size_t piece_;  // bytes exchanged at a time
  const int spin_us_;
  AlignedBuffer slots_;  // [size_ + 1, piece_] bytes: one slot per rank, then the result
  std::vector<Channel> channels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t arrived_ = 0;
  std::atomic<uint64_t> meetings_{0};
  std::atomic<bool> aborted_{false};
};

}  // namespace chorus
