// Fixed model steps whose cost can be compared between commits.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/prepared_adapter.h"
#include "models/step_input.h"

namespace chorus {

struct FixedStep {
  std::string name;
  StepInput input;
  std::vector<std::vector<int32_t>> tables;  // block tables of the sequences
};

inline constexpr int32_t kFixedBlockTokens = 16;
inline constexpr int64_t kFixedBlocks = 96;
inline constexpr int32_t kFixedRows = 128;  // maximum rows in a step

// Returns these steps:
//   prefill of 64 tokens; decode of 1 and of 8 sequences at position 64; prefill and decode in one batch
//   with adapters (none or at least three): decode of 8 sequences that use three adapters or none, and prefill of two
//   sequences with two adapters
// Keys and values at earlier positions are arbitrary, because a step's cost does not depend on them.
std::vector<FixedStep> fixedSteps(int32_t vocab, const std::vector<std::shared_ptr<const PreparedAdapter>>& adapters);

}  // namespace chorus
