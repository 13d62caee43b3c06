#include "runtime/kv_cache/kv_budget.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/units.h"

namespace chorus {

int32_t kvBlocks(const KvBudget& budget) {
  const float fraction = budget.fraction.value_or(0.5f);
  if (!(fraction > 0.0f && fraction <= 1.0f)) {
    fail(ErrorCode::kInvalidArgument, "freeGpuMemoryFraction {} is not in (0, 1]", fraction);
  }
  if (budget.max_tokens && *budget.max_tokens <= 0) {
    fail(ErrorCode::kInvalidArgument, "KvCacheConfig maxTokens {} must be positive", *budget.max_tokens);
  }
  const int64_t per_sequence = budget.demand.mostBlocks(budget.max_seq_len, budget.max_num_tokens);
  const int64_t most = std::min<int64_t>(per_sequence * budget.max_batch_size, std::numeric_limits<int32_t>::max());
  if (budget.max_tokens) {
    const int64_t blocks = int64_t{*budget.max_tokens / budget.demand.tokens_per_block} * budget.demand.numGroups();
    if (blocks < per_sequence) {
      fail(ErrorCode::kInvalidArgument,
           "KvCacheConfig maxTokens {} does not hold one sequence of max_seq_len {} in whole blocks of {} "
           "tokens",
           *budget.max_tokens, budget.max_seq_len, budget.demand.tokens_per_block);
    }
    return static_cast<int32_t>(std::min(blocks, most));
  }
  const auto share = static_cast<int64_t>(static_cast<double>(std::max<int64_t>(budget.free_bytes, 0)) * fraction);
  int64_t blocks = share / budget.block_bytes;
  if (!budget.fraction && blocks < per_sequence && budget.free_bytes / budget.block_bytes >= per_sequence) {
    blocks = per_sequence;
  }
  if (blocks < per_sequence) {
    fail(ErrorCode::kExhausted,
         "the KV cache needs {:.1f} MiB for one sequence of max_seq_len {}, but its share of the free memory "
         "is {:.1f} "
         "MiB: lower max_seq_len or hostCacheSize, or raise freeGpuMemoryFraction (--kv_cache_free_memory_fraction)",
         mebibytes(per_sequence * budget.block_bytes), budget.max_seq_len, mebibytes(share));
  }
  return static_cast<int32_t>(std::min(blocks, most));
}

}  // namespace chorus
