// The input of one step of the network: packed tokens, the positions and blocks of each sequence, the rows that need
// logits, and the rows of each adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "models/adapter_id.h"

namespace chorus {

// The rows that use one adapter. Rows are in at most one AdapterRows; rows in none use the base weights alone.
struct AdapterRows {
  AdapterId adapter{};           // the caller keeps its PreparedAdapter alive until the step is done
  int64_t vocab_size = 0;        // PreparedAdapter::vocab_size
  std::vector<RowRange> ranges;  // ascending
};

// The owner reuses one StepInput from step to step and reserves its vectors once. SequenceSpan::block_tables points to
// the owner's tables, which must stay valid during the step.
struct StepInput {
  std::vector<int32_t> tokens;
  std::vector<SequenceSpan> sequences;
  std::vector<int32_t> logits_rows;
  std::vector<AdapterRows> adapters;
  std::vector<BlockCopy> copies;  // KV blocks that are copied in all layers before the step, in order
};

// Number of columns of a step's logits: the size of the largest vocabulary among the model's and those of the step's
// adapters. In a row with an adapter whose vocabulary has n tokens, the first n columns are the logits and the other
// columns are undefined.
inline int64_t logitsWidth(const StepInput& input, int64_t model_vocabulary) {
  int64_t width = model_vocabulary;
  for (const AdapterRows& rows : input.adapters) width = std::max(width, rows.vocab_size);
  return width;
}

}  // namespace chorus
