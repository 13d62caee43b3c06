// Collectives between the ranks of a group, over float32 device memory. The interface never exposes a peer's memory,
// so ranks may be threads of this process (local.h) or other processes.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace chorus {

// Communicator of one rank. Every rank of the group must call the same collectives in the same order with the same
// sizes, each on its own thread and stream. All pointers are device memory of the rank's own backend. A call may
// return before the stream has finished the work. Throws Error(kInternal) if the group was aborted because another
// rank failed.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // data[i] becomes the sum over all ranks of data[i], added in ascending rank order, so that every rank gets the
  // same bits in every run.
  virtual void allReduceSum(float* data, int64_t count, Stream stream) = 0;

  // Concatenates the columns of all ranks' `part` in rank order into `whole`, on every rank.
  // part: [rows, part_cols]. whole: [rows, whole_cols], whole_cols <= size() * part_cols; the columns beyond
  // whole_cols are vocabulary padding and are dropped. part must not alias whole.
  virtual void allGatherColumns(const ConstMatrix& part, const Matrix& whole, Stream stream) = 0;

  // Point-to-point transfer: for each send() the rank `to` must call receive() with the same count.
  virtual void send(const float* data, int64_t count, int32_t to, Stream stream) = 0;
  virtual void receive(float* data, int64_t count, int32_t from, Stream stream) = 0;
};

}  // namespace chorus
