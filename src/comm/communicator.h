// Collectives between the ranks of a group, over float32 device memory. Ranks may be threads of this process
// (local.h) or other processes: nothing here shows a peer's memory.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace chorus {

// One rank's end. Every rank of the group calls the same collectives in the same order with the same sizes,
// each on its own thread and stream; memory is that of the rank's backend. Calls may return before the stream
// has done the work. Throws Error(kInternal) when the group was aborted because another rank failed.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // data[i] becomes the sum over ranks of data[i], added in ascending rank order: the same bits on every
  // rank, whatever the timing.
  virtual void allReduceSum(float* data, int64_t count, Stream stream) = 0;

  // Every rank's part [rows, part_cols] side by side in rank order is whole [rows, whole_cols] on all of
  // them. Columns past whole_cols, at most size() * part_cols, are left out: the padding of a vocabulary.
  // part does not alias whole.
  virtual void allGatherColumns(const ConstMatrix& part, const Matrix& whole, Stream stream) = 0;

  // Moves data from one rank to another, which calls the other half with the same count.
  virtual void send(const float* data, int64_t count, int32_t to, Stream stream) = 0;
  virtual void receive(float* data, int64_t count, int32_t from, Stream stream) = 0;
};

}  // namespace chorus
