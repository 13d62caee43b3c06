// What the ops of one step need to know about its rows, in host memory; Backend::prepare turns it into device
// form. Rows are packed tokens: sequences in their context phase first, then generation, no padding (spec
// S3).
#pragma once

#include <cstdint>
#include <span>

namespace chorus {

struct RowRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// One sequence's tokens in this step. Context, a chunk of it, and generation are the same shape.
struct SequenceSpan {
  int32_t row_begin = 0;
  int32_t num_rows = 0;                  // >= 1
  int32_t first_position = 0;            // position of its first row: the tokens already in the cache
  std::span<const int32_t> block_table;  // KV blocks in order, covering first_position + num_rows tokens
};

struct StepBatch {
  std::span<const int32_t> tokens;          // [rows]
  std::span<const SequenceSpan> sequences;  // row ranges ascending, together all rows
  std::span<const int32_t> logits_rows;     // ascending rows whose logits are wanted
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace chorus
