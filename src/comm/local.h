// Ranks in one process: each is a thread with a backend of its own, and values pass through host memory of
// the group.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/aligned_buffer.h"
#include "comm/communicator.h"

namespace chorus {

class LocalGroup {
 public:
  // longest_row: the widest whole that allGatherColumns will be given. spin_us: how long a collective looks
  // for the other ranks before it sleeps; 0 wherever the process has more threads than cores.
  LocalGroup(int32_t size, int64_t longest_row, int spin_us);
  ~LocalGroup();
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  // The end of `rank`, whose memory is backend's. Must outlive neither.
  std::unique_ptr<Communicator> communicator(int32_t rank, Backend& backend);

  // A rank that can't go on calls this: the others throw where they wait, and at their next call.
  // Thread-safe.
  void abort();
  // Makes the group usable again. No rank may be inside a call.
  void reset();

 private:
  class End;
  // What is on its way between two ranks, a piece at a time.
  struct Channel {
    AlignedBuffer staging;
    bool full = false;
    int64_t count = 0;
  };

  float* slot(int32_t rank) { return slots_.as<float>() + rank * piece_; }
  float* result() { return slots_.as<float>() + size_ * piece_; }
  Channel& channel(int32_t from, int32_t to) { return channels_[static_cast<size_t>(from * size_ + to)]; }
  // Returns when all ranks have called it.
  void meet();
  void awaitChannel(const Channel& channel, bool full);
  void setChannel(Channel& channel, bool full);
  // Sums every rank's slot over this rank's share of [0, count) into the result.
  void sumShare(int32_t rank, int64_t count);

  const int32_t size_;
  const int64_t piece_;  // floats that pass at once
  const int spin_us_;
  AlignedBuffer slots_;  // one a rank, then the result
  std::vector<Channel> channels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t arrived_ = 0;
  std::atomic<uint64_t> meetings_{0};
  std::atomic<bool> aborted_{false};
};

}  // namespace chorus
