// Collectives between the ranks of a group, over matrices in device memory. The interface never exposes a peer's
// memory, so ranks may be threads of this process (local.h) or other processes.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace chorus {

// Communicator of one rank. Every rank of the group must call the same collectives in the same order with the same
// shapes and types, each on its own thread and stream. All matrices are in memory of the rank's own backend. A call may
// return before the stream has finished the work. Throws Error(kInternal) if the group was aborted because another
// rank failed.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // Every element of x becomes the sum of that element over all ranks, added in ascending rank order, so that every
  // rank gets the same bits in every run. x: no gaps between rows; of a backend's type of activations, float32 or
  // float64.
  virtual void allReduceSum(const Matrix& x, Stream stream) = 0;

  // Concatenates the columns of all ranks' `part` in rank order into `whole`, on every rank.
  // part: [rows, part_cols]. whole: [rows, whole_cols], whole_cols <= size() * part_cols; the columns beyond
  // whole_cols are vocabulary padding and are dropped. part must not alias whole and has its type.
  virtual void allGatherColumns(const ConstMatrix& part, const Matrix& whole, Stream stream) = 0;

  // Point-to-point transfer: for each send() the rank `to` must call receive() with the same shape and type. x: no gaps
  // between rows.
  virtual void send(const ConstMatrix& x, int32_t to, Stream stream) = 0;
  virtual void receive(const Matrix& x, int32_t from, Stream stream) = 0;
};

}  // namespace chorus
