// Metadata of the rows of one step, in host memory; Backend::prepare turns it into the backend's form. A row is one
// token. Rows are packed without padding: first the sequences in their context phase, then those in their generation
// phase.
#pragma once

#include <cstdint>
#include <span>

namespace chorus {

struct RowRange {
  int32_t begin = 0;
  int32_t end = 0;
};

// The tokens of one sequence in this step. A whole prompt, a chunk of a prompt and a generation step have the same
// form.
struct SequenceSpan {
  int32_t row_begin = 0;
  int32_t num_rows = 0;                  // >= 1
  int32_t first_position = 0;            // position of its first row: the number of its tokens in the cache
  std::span<const int32_t> block_table;  // KV blocks in order, covering first_position + num_rows tokens
};

struct StepBatch {
  std::span<const int32_t> tokens;          // [rows]
  std::span<const SequenceSpan> sequences;  // in ascending order of rows; together they are all rows
  std::span<const int32_t> logits_rows;     // rows whose logits are needed, ascending
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

}  // namespace chorus
