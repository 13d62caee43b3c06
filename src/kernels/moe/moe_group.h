// Rows of a mixture of experts that share LoRA terms.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/linear/row_group.h"

namespace chorus {

// LoRA terms of a linear with experts: those of expert e are terms [begin[e], begin[e + 1]).
struct ExpertTerms {
  std::span<const LoraTerm> terms;
  std::span<const int32_t> begin;  // [experts + 1], or empty if there are no terms

  std::span<const LoraTerm> of(int64_t expert) const {
    if (begin.empty()) return {};
    const auto e = static_cast<size_t>(expert);
    return terms.subspan(static_cast<size_t>(begin[e]), static_cast<size_t>(begin[e + 1] - begin[e]));
  }
};

// Rows that share the LoRA terms of all experts. Groups of one call are disjoint.
struct MoeGroup {
  std::span<const RowRange> ranges;  // ascending
  ExpertTerms fc, proj;
};

}  // namespace chorus
