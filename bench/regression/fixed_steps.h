// Steps that never change, so that what they cost can be compared from commit to commit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/step_input.h"

namespace chorus {

struct FixedStep {
  std::string name;
  StepInput input;
  std::vector<std::vector<int32_t>> tables;  // block tables of the sequences
};

inline constexpr int32_t kFixedBlockTokens = 16;
inline constexpr int64_t kFixedBlocks = 96;
inline constexpr int32_t kFixedRows = 128;  // the most in a step

// Context of 64 tokens, generation of 1 and 8 sequences at position 64, and a step of both; with adapters (at least
// three) also a generation of 8 sequences over three of them and none, and a context over two. Keys and values before
// them may be anything: what a step costs does not depend on them.
std::vector<FixedStep> fixedSteps(int32_t vocab, const std::vector<std::shared_ptr<const PreparedAdapter>>& adapters);

}  // namespace chorus
