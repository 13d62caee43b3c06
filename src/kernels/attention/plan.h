// Divides a step's attention into work items for the threads. The division changes no result.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/step_batch.h"

namespace chorus {

// Some rows of a sequence over some KV splits of kAttentionSplit positions, for all query heads of one KV head.
struct AttentionItem {
  int32_t sequence = 0;
  int32_t row_begin = 0;  // within the sequence
  int32_t row_end = 0;
  int32_t split_begin = 0;
  int32_t split_end = 0;
  // KV splits of the whole row block, of which the item may have a part: from the first that its first row attends to.
  int32_t block_begin = 0;
  int32_t block_end = 0;
  int64_t partial = -1;  // first partial result of the row block if items share it; else -1
};

// The facts, besides the batch and the number of threads, that a plan depends on. Layers with equal keys share a plan.
struct AttentionPlanKey {
  int32_t group = 0;  // query heads per KV head
  int32_t num_kv_heads = 0;
  int64_t window = 0;  // AttentionMask::window

  bool operator==(const AttentionPlanKey&) const = default;
};

// The items of a step, longest first. Each item is run once for every KV head.
struct AttentionPlan {
  AttentionPlanKey key;
  std::vector<AttentionItem> items;
  // Row blocks whose KV splits were computed by several items and must be merged. The partial results of a block are
  // [kv_head][KV split][query], from index `partial` on.
  std::vector<AttentionItem> shared;
};

// Maximum queries of an item, unless a single row has more. The queries of an item share what is read of the cache, and
// their state must stay in L2.
inline constexpr int32_t kAttentionQueries = 96;
inline int32_t attentionRowsPerItem(int32_t group) { return group < kAttentionQueries ? kAttentionQueries / group : 1; }
// Maximum number of partial results. A row block that would exceed it is not divided among items.
inline int64_t attentionPartials(int threads) { return threads < 8 ? 2048 : int64_t{256} * threads; }

void planAttention(const StepBatch& batch, const AttentionPlanKey& key, int threads, AttentionPlan& plan);

// The plans of a step, one for each key that its layers have. Keeps the memory of the plans of earlier steps.
class AttentionPlans {
 public:
  // Forgets the plans. Call it when a step begins.
  void clear() { count_ = 0; }
  // Makes the plan if this step has none for the key. The batch and the number of threads must be the same until
  // clear(). The reference is valid until the next call.
  const AttentionPlan& planFor(const StepBatch& batch, const AttentionPlanKey& key, int threads);

 private:
  std::vector<AttentionPlan> plans_;
  size_t count_ = 0;  // of plans_, made for this step
};

}  // namespace chorus
