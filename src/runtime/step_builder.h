// From a plan's sequences to the packed step that a session runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/step_input.h"

namespace chorus {

enum class LogitsWanted { kNone, kLastRow, kAllRows };

// One sequence of the step, in packed order. What it points to stays valid until the step is done.
struct StepSequence {
  std::span<const int32_t> tokens;       // of this step, at least one
  int32_t first_position = 0;            // of the first of them
  std::span<const int32_t> block_table;  // covers first_position + tokens.size() tokens
  const PreparedAdapter* adapter = nullptr;
  LogitsWanted logits = LogitsWanted::kNone;
};

// Not thread-safe. Sized once: building allocates nothing once the largest step was seen.
class StepBuilder {
 public:
  StepBuilder(int32_t max_batch_size, int32_t max_num_tokens);

  // The result is valid until the next build. Sequences of one adapter need not be neighbours, but where they
  // are they share a row range.
  const StepInput& build(std::span<const StepSequence> sequences);

  // Where the logits of sequence i of the last build stand among the rows that the step returns: [begin,
  // end).
  RowRange logitsOf(size_t i) const { return logits_[i]; }

 private:
  void addAdapterRows(const PreparedAdapter* adapter, RowRange rows);

  StepInput input_;
  std::vector<RowRange> logits_;
  std::vector<std::vector<RowRange>> spare_ranges_;  // memory of groups that the last step did not need
};

}  // namespace chorus
