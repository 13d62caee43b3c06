#include "kernels/attention/plan.h"

#include <algorithm>

#include "kernels/attention/attention.h"

namespace chorus {
namespace {

int64_t positions(const StepBatch& batch, const AttentionItem& item) {
  const SequenceSpan& sequence = batch.sequences[static_cast<size_t>(item.sequence)];
  const int64_t end =
      std::min(int64_t{item.split_end} * kAttentionSplit, int64_t{sequence.first_position} + item.row_end);
  return end - int64_t{item.split_begin} * kAttentionSplit;
}
int64_t cost(const StepBatch& batch, const AttentionItem& item) {
  return positions(batch, item) * (item.row_end - item.row_begin);
}

// Divides a row block into items of about `share` of its cost each if there is room for the partial results; otherwise
// it becomes one item.
void shareOut(const AttentionItem& whole, int64_t whole_cost, int64_t share, int64_t queries, int64_t& partials,
              int64_t room, AttentionPlan& plan) {
  const int64_t splits = whole.split_end;
  const int64_t pieces = std::min<int64_t>(splits, (whole_cost + share - 1) / share);
  if (pieces < 2 || partials + queries * splits > room) {
    plan.items.push_back(whole);
    return;
  }
  AttentionItem item = whole;
  item.partial = partials;
  partials += queries * splits;
  plan.shared.push_back(item);
  for (int64_t i = 0; i < pieces; ++i) {
    item.split_begin = static_cast<int32_t>(splits * i / pieces);
    item.split_end = static_cast<int32_t>(splits * (i + 1) / pieces);
    plan.items.push_back(item);
  }
}
}  // namespace

void planAttention(const StepBatch& batch, int32_t group, int32_t num_kv_heads, int threads, AttentionPlan& plan) {
  plan.group = group;
  plan.num_kv_heads = num_kv_heads;
  plan.items.clear();
  plan.shared.clear();
  const int32_t rows_per_item = attentionRowsPerItem(group);
  int64_t total = 0;
  const auto forEachBlock = [&](auto&& fn) {
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const SequenceSpan& sequence = batch.sequences[s];
      for (int32_t row = 0; row < sequence.num_rows; row += rows_per_item) {
        const int32_t end = std::min(row + rows_per_item, sequence.num_rows);
        const int64_t splits = (int64_t{sequence.first_position} + end + kAttentionSplit - 1) / kAttentionSplit;
        fn(AttentionItem{static_cast<int32_t>(s), row, end, 0, static_cast<int32_t>(splits)});
      }
    }
  };
  forEachBlock([&](const AttentionItem& block) { total += cost(batch, block) * num_kv_heads; });
  // A quarter of an even share per item: with items of a whole even share, the other threads would wait for the last
  // item.
  const int64_t share = threads == 1 ? total : std::max<int64_t>(kAttentionSplit, total / (int64_t{4} * threads));
  int64_t partials = 0;
  forEachBlock([&](const AttentionItem& block) {
    const int64_t queries = int64_t{block.row_end - block.row_begin} * group * num_kv_heads;
    shareOut(block, cost(batch, block), share, queries, partials, attentionPartials(threads), plan);
  });
  std::sort(plan.items.begin(), plan.items.end(),
            [&](const AttentionItem& a, const AttentionItem& b) { return cost(batch, a) > cost(batch, b); });
}

}  // namespace chorus
