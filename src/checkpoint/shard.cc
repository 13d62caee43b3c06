#include "checkpoint/shard.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/error.h"

namespace chorus {
namespace {

// The rank's share of one separately split part, rows [begin, begin + rows). head_rows > 0: the part consists of heads
// of that many rows; with fewer heads than ranks, tp_size / heads consecutive ranks hold the same head.
RowRun cutPart(const WeightRow& row, int64_t begin, int64_t rows, int64_t head_rows, int32_t tp_size, int32_t tp_rank) {
  const int64_t heads = head_rows > 0 ? rows / head_rows : 0;
  if (heads > 0 && heads < tp_size) {
    if (tp_size % heads != 0) {
      fail(ErrorCode::kInvalidArgument, "{}: {} heads cannot be repeated over tp_size {}", row.name, heads, tp_size);
    }
    return {begin + tp_rank / (tp_size / heads) * head_rows, head_rows};
  }
  const int64_t unit = std::max<int64_t>(head_rows, 1);
  if (rows % (unit * tp_size) != 0) {
    fail(ErrorCode::kInvalidArgument, "{}: {} rows in units of {} do not divide over tp_size {}", row.name, rows, unit,
         tp_size);
  }
  const int64_t each = rows / tp_size;
  return {begin + tp_rank * each, each};
}

std::vector<RowRun> cutRows(const WeightRow& row, int32_t tp_size, int32_t tp_rank) {
  const int64_t rows = row.shape[0];
  if (!row.shard.parts.empty()) {
    assert(std::accumulate(row.shard.parts.begin(), row.shard.parts.end(), int64_t{0}) == rows);
    std::vector<RowRun> runs;
    int64_t begin = 0;
    for (size_t i = 0; i < row.shard.parts.size(); ++i) {
      const int64_t head_rows = i < row.shard.head_rows.size() ? row.shard.head_rows[i] : 0;
      runs.push_back(cutPart(row, begin, row.shard.parts[i], head_rows, tp_size, tp_rank));
      begin += row.shard.parts[i];
    }
    return runs;
  }
  if (!row.shard.pad_rows) return {cutPart(row, 0, rows, 0, tp_size, tp_rank)};
  const int64_t each = (rows + tp_size - 1) / tp_size;
  const int64_t begin = std::min(tp_rank * each, rows);
  const int64_t real = std::min(each, rows - begin);
  std::vector<RowRun> runs;
  if (real > 0) runs.push_back({begin, real});
  if (real < each) runs.push_back({-1, each - real});
  return runs;
}
}  // namespace

TensorSlice sliceForRank(const WeightRow& row, int32_t tp_size, int32_t tp_rank) {
  TensorSlice slice;
  slice.cols = row.shape.size() == 2 ? row.shape[1] : 1;
  slice.runs = {{0, row.shape[0]}};
  if (row.shard.axis == ShardRule::Axis::kRows) {
    slice.runs = cutRows(row, tp_size, tp_rank);
  } else if (row.shard.axis == ShardRule::Axis::kColumns) {
    if (slice.cols % tp_size != 0) {
      fail(ErrorCode::kInvalidArgument, "{}: {} columns do not divide over tp_size {}", row.name, slice.cols, tp_size);
    }
    slice.cols /= tp_size;
    slice.col_begin = tp_rank * slice.cols;
  }
  for (const RowRun& run : slice.runs) slice.rows += run.rows;
  return slice;
}

std::vector<RowRun> sliceRowsForRank(const WeightRow& row, int64_t row_begin, int64_t rows, int32_t tp_size,
                                     int32_t tp_rank) {
  const TensorSlice slice = sliceForRank(row, tp_size, tp_rank);
  std::vector<RowRun> runs;
  for (const RowRun& run : slice.runs) {
    if (run.begin < 0) continue;
    const int64_t begin = std::max(run.begin, row_begin);
    const int64_t end = std::min(run.begin + run.rows, row_begin + rows);
    if (begin < end) runs.push_back({begin - row_begin, end - begin});
  }
  return runs;
}

int64_t rankRowBegin(const WeightRow& row, int64_t row_begin, int32_t tp_size, int32_t tp_rank) {
  int64_t rows = 0;
  for (const RowRun& run : sliceForRank(row, tp_size, tp_rank).runs) {
    if (run.begin >= 0) rows += std::clamp<int64_t>(row_begin - run.begin, 0, run.rows);
  }
  return rows;
}

int64_t rankSlotBegin(const WeightTable& table, const WeightRow& row, int32_t tp_size, int32_t tp_rank) {
  int64_t rows = 0;
  for (const WeightRow& other : table) {
    const bool is_before = other.slot.whole() == row.slot.whole() && other.slot.row_begin < row.slot.row_begin;
    if (is_before) rows += sliceForRank(other, tp_size, tp_rank).rows;
  }
  return rows;
}

}  // namespace chorus
