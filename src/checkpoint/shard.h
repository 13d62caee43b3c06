// Which part of a whole tensor one tensor-parallel rank holds: the one place that knows how weights are cut. The
// converter copies by it, the adapters' B rows and DoRA magnitudes follow it.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/weight_table.h"

namespace chorus {

// Rows [begin, begin + rows) of the whole tensor; begin is -1 for rows of zeros.
struct RowRun {
  int64_t begin = 0;
  int64_t rows = 0;
};

// The rank's tensor: its runs stacked in order, columns [col_begin, col_begin + cols) of each row. One-dimensional
// tensors are rows of one column.
struct TensorSlice {
  std::vector<RowRun> runs;
  int64_t rows = 0;
  int64_t col_begin = 0;
  int64_t cols = 0;
};

// Throws Error(kInvalidArgument) that names the tensor when its extent does not divide over the ranks.
TensorSlice sliceForRank(const WeightRow& row, int32_t tp_size, int32_t tp_rank);

// The same cut applied to output rows [row_begin, row_begin + rows) of the tensor, one of its parts or all of it
// (an adapter module's B and magnitude): runs count from row_begin.
std::vector<RowRun> sliceRowsForRank(const WeightRow& row, int64_t row_begin, int64_t rows, int32_t tp_size,
                                     int32_t tp_rank);

// Where those rows begin in the rank's tensor: the rank's rows that stand before row_begin in the whole one.
int64_t rankRowBegin(const WeightRow& row, int64_t row_begin, int32_t tp_size, int32_t tp_rank);

}  // namespace chorus
