#include "kernels/attention/plan.h"

#include <algorithm>

namespace chorus {
namespace {

// Positions of the item's KV splits that its rows attend to.
int64_t positions(const StepBatch& batch, const AttentionMask& mask, const AttentionItem& item) {
  const SequenceSpan& sequence = batch.sequences[static_cast<size_t>(item.sequence)];
  const int64_t first_row = int64_t{sequence.first_position} + item.row_begin;
  const int64_t begin = std::max(int64_t{item.split_begin} * kAttentionSplit, mask.firstPosition(first_row));
  const int64_t end =
      std::min(int64_t{item.split_end} * kAttentionSplit, int64_t{sequence.first_position} + item.row_end);
  return end - begin;
}
int64_t cost(const StepBatch& batch, const AttentionMask& mask, const AttentionItem& item) {
  return positions(batch, mask, item) * (item.row_end - item.row_begin);
}

// Divides a row block into items of about `share` of its cost each if there is room for the partial results; otherwise
// it becomes one item.
void shareOut(const AttentionItem& whole, int64_t whole_cost, int64_t share, int64_t queries, int64_t& partials,
              int64_t room, AttentionPlan& plan) {
  const int64_t splits = whole.block_end - whole.block_begin;
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
    item.split_begin = whole.block_begin + static_cast<int32_t>(splits * i / pieces);
    item.split_end = whole.block_begin + static_cast<int32_t>(splits * (i + 1) / pieces);
    plan.items.push_back(item);
  }
}
}  // namespace

void planAttention(const StepBatch& batch, const AttentionPlanKey& key, int threads, AttentionPlan& plan) {
  plan.key = key;
  plan.items.clear();
  plan.shared.clear();
  const AttentionMask mask{key.window};
  const int32_t rows_per_item = attentionRowsPerItem(key.group);
  int64_t total = 0;
  const auto forEachBlock = [&](auto&& fn) {
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const SequenceSpan& sequence = batch.sequences[s];
      for (int32_t row = 0; row < sequence.num_rows; row += rows_per_item) {
        const int32_t end = std::min(row + rows_per_item, sequence.num_rows);
        const int64_t first = int64_t{sequence.first_position} + row, last = int64_t{sequence.first_position} + end - 1;
        const auto split_begin = static_cast<int32_t>(mask.firstPosition(first) / kAttentionSplit);
        const auto split_end = static_cast<int32_t>(last / kAttentionSplit + 1);
        fn(AttentionItem{static_cast<int32_t>(s), row, end, split_begin, split_end, split_begin, split_end});
      }
    }
  };
  forEachBlock([&](const AttentionItem& block) { total += cost(batch, mask, block) * key.num_kv_heads; });
  // A quarter of an even share per item: with items of a whole even share, the other threads would wait for the last
  // item.
  const int64_t share = threads == 1 ? total : std::max<int64_t>(kAttentionSplit, total / (int64_t{4} * threads));
  int64_t partials = 0;
  forEachBlock([&](const AttentionItem& block) {
    const int64_t queries = int64_t{block.row_end - block.row_begin} * key.group * key.num_kv_heads;
    shareOut(block, cost(batch, mask, block), share, queries, partials, attentionPartials(threads), plan);
  });
  std::sort(plan.items.begin(), plan.items.end(), [&](const AttentionItem& a, const AttentionItem& b) {
    return cost(batch, mask, a) > cost(batch, mask, b);
  });
}

const AttentionPlan& AttentionPlans::planFor(const StepBatch& batch, const AttentionPlanKey& key, int threads) {
  for (size_t i = 0; i < count_; ++i) {
    if (plans_[i].key == key) return plans_[i];
  }
  if (count_ == plans_.size()) plans_.emplace_back();
  planAttention(batch, key, threads, plans_[count_]);
  return plans_[count_++];
}

}  // namespace chorus
