// One step of the network: packed tokens, where each sequence stands, which rows need logits, which use an adapter.
#pragma once

#include <vector>

#include "kernels/step_batch.h"
#include "models/adapter_parts.h"

namespace chorus {

// Rows of one adapter. Groups are disjoint; rows in no group use the base weights alone.
struct AdapterRows {
  const PreparedAdapter* adapter = nullptr;  // pinned by the caller until the step is done
  std::vector<RowRange> ranges;              // ascending
};

// Reused from step to step; sized once by reserve of its owner. SequenceSpan::block_table points into the owner's
// tables and stays valid through the step.
struct StepInput {
  std::vector<int32_t> tokens;
  std::vector<SequenceSpan> sequences;
  std::vector<int32_t> logits_rows;
  std::vector<AdapterRows> adapters;
};

}  // namespace chorus
