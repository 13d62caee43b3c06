// Computes which shard of a whole tensor each tensor-parallel rank holds. Only this file defines how weights are split;
// the converter, the adapters' B matrices and the DoRA magnitudes all use it.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/weight_table.h"

namespace chorus {

// Rows [begin, begin + rows) of the whole tensor; begin == -1 means `rows` rows of zeros (padding).
struct RowRun {
  int64_t begin = 0;
  int64_t rows = 0;
};

// A rank's shard: the rows of all runs in order, columns [col_begin, col_begin + cols) of each. A one-dimensional
// tensor counts as rows of one column.
struct TensorSlice {
  std::vector<RowRun> runs;
  int64_t rows = 0;
  int64_t col_begin = 0;
  int64_t cols = 0;
};

// The shard of one rank. Throws Error(kInvalidArgument) that names the tensor when it cannot be split evenly over
// tp_size ranks.
TensorSlice sliceForRank(const WeightRow& row, int32_t tp_size, int32_t tp_rank);

// The rank's runs within rows [row_begin, row_begin + rows) of the whole tensor, with RowRun::begin relative to
// row_begin and without padding. Used for an adapter module's B and magnitude, which cover some or all output rows.
std::vector<RowRun> sliceRowsForRank(const WeightRow& row, int64_t row_begin, int64_t rows, int32_t tp_size,
                                     int32_t tp_rank);

// Index in the rank's shard at which the rows of sliceRowsForRank begin: the number of the rank's rows that come before
// row_begin in the whole tensor.
int64_t rankRowBegin(const WeightRow& row, int64_t row_begin, int32_t tp_size, int32_t tp_rank);

// First row of the row's tensor within this rank's slot: the number of this rank's rows of all table rows that come
// before it in the slot.
int64_t rankSlotBegin(const WeightTable& table, const WeightRow& row, int32_t tp_size, int32_t tp_rank);

}  // namespace chorus
