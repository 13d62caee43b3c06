#include "runtime/step_builder.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chorus {

StepBuilder::StepBuilder(int32_t max_batch_size, int32_t max_num_tokens) {
  const auto batch = static_cast<size_t>(max_batch_size);
  input_.tokens.reserve(static_cast<size_t>(max_num_tokens));
  input_.sequences.reserve(batch);
  input_.logits_rows.reserve(batch);
  input_.adapters.reserve(batch);
  logits_.reserve(batch);
  spare_ranges_.reserve(batch);
}

const StepInput& StepBuilder::build(std::span<const StepSequence> sequences) {
  for (auto& group : input_.adapters) spare_ranges_.push_back(std::move(group.ranges));
  input_.tokens.clear();
  input_.sequences.clear();
  input_.logits_rows.clear();
  input_.adapters.clear();
  logits_.clear();
  for (const auto& sequence : sequences) {
    assert(!sequence.tokens.empty());
    const auto begin = static_cast<int32_t>(input_.tokens.size());
    const auto count = static_cast<int32_t>(sequence.tokens.size());
    input_.tokens.insert(input_.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    input_.sequences.push_back({begin, count, sequence.first_position, sequence.block_tables});

    const auto logits_begin = static_cast<int32_t>(input_.logits_rows.size());
    int32_t row = begin + count;
    if (sequence.logits == LogitsWanted::kLastRow) row -= 1;
    if (sequence.logits == LogitsWanted::kAllRows) row = begin;
    for (; row < begin + count; ++row) input_.logits_rows.push_back(row);
    logits_.push_back({logits_begin, static_cast<int32_t>(input_.logits_rows.size())});

    if (sequence.adapter != nullptr) addAdapterRows(sequence.adapter, {begin, begin + count});
  }
  return input_;
}

void StepBuilder::addAdapterRows(const PreparedAdapter* adapter, RowRange rows) {
  auto group = std::find_if(input_.adapters.begin(), input_.adapters.end(),
                            [&](const AdapterRows& g) { return g.adapter == adapter->id; });
  if (group == input_.adapters.end()) {
    std::vector<RowRange> ranges;
    if (!spare_ranges_.empty()) {
      ranges = std::move(spare_ranges_.back());
      spare_ranges_.pop_back();
      ranges.clear();
    }
    group = input_.adapters.insert(group, AdapterRows{adapter->id, adapter->vocab_size, std::move(ranges)});
  }
  if (!group->ranges.empty() && group->ranges.back().end == rows.begin)
    group->ranges.back().end = rows.end;
  else
    group->ranges.push_back(rows);
}

}  // namespace chorus
