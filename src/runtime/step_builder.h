// Packs a plan's sequences into the StepInput that a session runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/prepared_adapter.h"
#include "models/step_input.h"

namespace chorus {

enum class LogitsWanted { kNone, kLastRow, kAllRows };

// A sequence of the step, in packed order. The objects that it refers to must live until the step is done.
struct StepSequence {
  std::span<const int32_t> tokens;  // tokens of this step, at least one
  int32_t first_position = 0;       // position of tokens[0] in the sequence
  BlockTables block_tables;         // cover first_position + tokens.size() tokens
  const PreparedAdapter* adapter = nullptr;
  LogitsWanted logits = LogitsWanted::kNone;
};

// Not thread-safe. Reuses its memory: build() allocates nothing once it has seen the largest step.
class StepBuilder {
 public:
  StepBuilder(int32_t max_batch_size, int32_t max_num_tokens);

  // The result is valid until the next build(). Adjacent sequences of one adapter share a row range; sequences of one
  // adapter need not be adjacent.
  const StepInput& build(std::span<const StepSequence> sequences);

  // Rows [begin, end) of the last build's logits that belong to sequence i.
  RowRange logitsOf(size_t i) const { return logits_[i]; }

 private:
  void addAdapterRows(const PreparedAdapter* adapter, RowRange rows);

  StepInput input_;
  std::vector<RowRange> logits_;
  std::vector<std::vector<RowRange>> spare_ranges_;  // unused memory of earlier groups
};

}  // namespace chorus
