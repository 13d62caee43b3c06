// The input of one step of the network: packed tokens, the positions and blocks of each sequence, the rows that need
// logits, and the rows of each adapter.
#pragma once

#include <vector>

#include "kernels/attention/kv_layout.h"
#include "kernels/step_batch.h"
#include "models/adapter_parts.h"

namespace chorus {

// The rows that use one adapter. Rows are in at most one AdapterRows; rows in none use the base weights alone.
struct AdapterRows {
  const PreparedAdapter* adapter = nullptr;  // the caller keeps it alive until the step is done
  std::vector<RowRange> ranges;              // ascending
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

}  // namespace chorus
