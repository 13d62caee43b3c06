// Who computes what of a step's attention: heuristics that change no result.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/step_batch.h"

namespace chorus {

// Some rows of a sequence over some stretches of kAttentionSplit positions, for all query heads of one KV head.
struct AttentionItem {
  int32_t sequence = 0;
  int32_t row_begin = 0;  // within the sequence
  int32_t row_end = 0;
  int32_t split_begin = 0;
  int32_t split_end = 0;
  int64_t partial = -1;  // of a row block that several items share, its first partial result; -1: not shared
};

// The items of a step but for the KV head, longest first, kept between calls for the layers that follow.
struct AttentionPlan {
  int32_t group = 0;  // query heads of a KV head; 0: not made yet for this step
  int32_t num_kv_heads = 0;
  std::vector<AttentionItem> items;
  // Row blocks whose stretches are to be merged. Partial results of one, take [kv_head][stretch][query]
  // places from `partial` on.
  std::vector<AttentionItem> shared;
};

// Queries of an item at most, where one row has no more of its own: they share what is read of the cache, while their
// state stays in L2.
inline constexpr int32_t kAttentionQueries = 96;
inline int32_t attentionRowsPerItem(int32_t group) { return group < kAttentionQueries ? kAttentionQueries / group : 1; }
// Partial results that there is room for; what would need more is not shared out.
inline int64_t attentionPartials(int threads) { return threads < 8 ? 2048 : int64_t{256} * threads; }

void planAttention(const StepBatch& batch, int32_t group, int32_t num_kv_heads, int threads, AttentionPlan& plan);

}  // namespace chorus
