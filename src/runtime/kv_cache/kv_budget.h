// How many KV blocks an executor takes: a pure function of configuration and free memory.
#pragma once

#include <cstdint>
#include <optional>

namespace chorus {

struct KvBudget {
  int64_t block_bytes = 0;  // one block over all layers
  int32_t tokens_per_block = 0;
  int32_t max_batch_size = 0;
  int32_t max_seq_len = 0;
  std::optional<int32_t> max_tokens;  // KvCacheConfig::maxTokens; wins over the fraction
  // KvCacheConfig::freeGpuMemoryFraction; unset: half, or more where that is less than one sequence
  std::optional<float> fraction;
  int64_t free_bytes = 0;  // what the engine and the adapter cache leave
};

// At most what max_batch_size sequences of max_seq_len fill. Throws Error when that is less than one sequence
// of max_seq_len, or a setting is out of range.
int32_t kvBlocks(const KvBudget& budget);

}  // namespace chorus
