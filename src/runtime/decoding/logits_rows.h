// Rows of logits of one sequence within a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace chorus {

// A view of logits [rows, vocab_size] of a step, which owns them. The step's rows are wider than vocab_size if another
// sequence's adapter has a larger vocabulary.
struct LogitsRows {
  const float* data = nullptr;
  int32_t rows = 0;
  int32_t vocab_size = 0;
  int64_t stride = 0;  // floats between rows

  std::span<const float> row(int32_t i) const { return {data + i * stride, static_cast<size_t>(vocab_size)}; }
  // The last `count` rows.
  LogitsRows last(int32_t count) const { return {data + (rows - count) * stride, count, vocab_size, stride}; }
};

}  // namespace chorus
