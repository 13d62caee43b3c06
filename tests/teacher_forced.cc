#include "teacher_forced.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace chorus::test {

std::vector<float> teacherForced(RankGroup& ranks, std::span<const int32_t> tokens, int64_t first_position,
                                 const PreparedAdapter* adapter, int64_t chunk) {
  std::vector<int32_t> blocks(static_cast<size_t>(kTeacherForcedOptions.kv_blocks));
  std::iota(blocks.rbegin(), blocks.rend(), 0);  // block ids are not in memory order
  const BlockTables tables(std::span<const int32_t>(blocks).first(blocks.size() / 8), std::ssize(blocks) / 8);
  std::vector<float> logits;
  for (int64_t begin = 0; begin < std::ssize(tokens); begin += chunk) {
    const int64_t end = std::min<int64_t>(begin + chunk, std::ssize(tokens));
    const int32_t count = static_cast<int32_t>(end - begin);
    StepInput step;
    step.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    step.sequences.push_back(
        {.row_begin = 0, .num_rows = count, .first_position = static_cast<int32_t>(begin), .block_tables = tables});
    for (int64_t position = std::max(begin, first_position); position < end; ++position) {
      step.logits_rows.push_back(static_cast<int32_t>(position - begin));
    }
    if (adapter != nullptr) step.adapters.push_back({adapter->id, adapter->vocab_size, {{0, count}}});
    const auto result = ranks.run(step);
    logits.insert(logits.end(), result.begin(), result.end());
  }
  return logits;
}

double largestOf(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) throw std::runtime_error("a value is not finite");
    largest = std::max<double>(largest, std::abs(value));
  }
  return largest;
}

double largestDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) throw std::runtime_error("sizes differ");
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) throw std::runtime_error("a value is not finite");
    largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  }
  return largest;
}

}  // namespace chorus::test
