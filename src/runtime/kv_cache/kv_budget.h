// Computes how many KV blocks an executor allocates: a pure function of configuration and free memory.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/kv_cache/kv_demand.h"

namespace chorus {

struct KvBudget {
  int64_t block_bytes = 0;  // of one block of the pool, over all ranks
  KvDemand demand;
  int32_t max_batch_size = 0;
  int32_t max_num_tokens = 0;  // rows per step
  int32_t max_seq_len = 0;
  std::optional<int32_t> max_tokens;  // KvCacheConfig::maxTokens, in every KV group; wins over the fraction
  // KvCacheConfig::freeGpuMemoryFraction. Unset: half of free_bytes, or what one sequence needs if that is more.
  std::optional<float> fraction;
  int64_t free_bytes = 0;  // memory that the engine and the adapter cache leave
};

// Returns at most what max_batch_size sequences of max_seq_len need. Throws Error if one sequence of max_seq_len does
// not fit, or if a setting is out of range.
int32_t kvBlocks(const KvBudget& budget);

}  // namespace chorus
