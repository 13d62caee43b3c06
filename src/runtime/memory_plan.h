// What an executor is going to take of the memory: worked out before it takes any, shown as a table, and then allocated
// in these sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/session.h"

namespace chorus {

struct MemoryPlan {
  std::vector<SessionMemory> ranks;
  int64_t adapters = 0;   // at most, filled as adapters are used
  int64_t available = 0;  // what the machine and the cgroup had left before anything was loaded
  int64_t kv_tokens = 0;

  int64_t weights() const;
  int64_t kvCache() const;
  int64_t activations() const;  // with logits on the host
  int64_t total() const { return weights() + kvCache() + activations() + adapters; }

  // Several lines: a row for each kind of memory, a column for each rank.
  std::string table() const;
  // Throws Error(kExhausted) with these numbers when all but the adapters is more than is available.
  void check() const;
};

// engines: by rank. options.kv_blocks may be 0: all but the KV cache.
MemoryPlan planMemory(std::span<const std::shared_ptr<const Engine>> engines, const SessionOptions& options,
                      int64_t adapter_bytes, int64_t available);

}  // namespace chorus
