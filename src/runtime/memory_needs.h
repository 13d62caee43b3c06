// Minimum memory to serve a model, computed from configurations alone, before anything is built or loaded.
#pragma once

#include <cstdint>
#include <string>

#include "chorus/executor_config.h"
#include "engine/session.h"

namespace chorus {

// Sizes in bytes, summed over all ranks.
struct MemoryNeeds {
  int64_t weights = 0;
  int64_t kv_sequence = 0;  // KV cache of one sequence of max_seq_len tokens
  int64_t activations = 0;  // including logits on the host
  int64_t adapters = 0;     // adapter cache: its configured size, else one adapter of the largest rank
  int32_t max_seq_len = 0;

  int64_t total() const { return weights + kv_sequence + activations + adapters; }
  bool fit(int64_t available) const { return total() <= available; }
  // Returns the sizes as text, for example
  // "9000.0 MiB (weights 8000.0, KV cache of one sequence of 4096 tokens 500.0, activations 300.0, adapters 200.0)".
  std::string text() const;
  // Throws Error(kExhausted) if the needs exceed `available`. Its message is one sentence with text(), `available` and
  // the flags that change the needs.
  void check(int64_t available) const;
};

// build: max_seq_len must be set. weight_bytes: size of all ranks' files. Throws Error if a configured adapter cache
// size is out of range.
MemoryNeeds leastMemory(const ModelConfig& model, const BuildConfig& build, int64_t weight_bytes,
                        const SessionOptions& options, const executor::PeftCacheConfig& adapters);

}  // namespace chorus
