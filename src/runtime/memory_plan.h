// Memory plan of an executor: computed before it allocates anything, printed as a table, and then allocated in these
// sizes.
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
  int64_t adapters = 0;   // upper bound, filled as adapters are used
  int64_t loads = 0;      // upper bound on the files of adapters and their conversions, used while adapters load
  int64_t available = 0;  // free memory of the machine and the cgroup before anything was loaded
  int64_t kv_tokens = 0;  // tokens for which every KV group can hold blocks at once

  int64_t weights() const;
  int64_t kvCache() const;
  int64_t activations() const;  // including logits on the host
  int64_t total() const { return weights() + kvCache() + activations() + adapters + loads; }

  // Text of several lines: one row per kind of memory, one column per rank.
  std::string table() const;
  // Throws Error(kExhausted) with these numbers if total() without adapters and loads exceeds `available`.
  void check() const;
};

// Bytes of the adapter cache's host level, and of adapters while they load.
struct AdapterBytes {
  int64_t cache = 0;
  int64_t loads = 0;
};

// engines: by rank. If options.kv_blocks is 0, the plan leaves out the KV cache.
MemoryPlan planMemory(std::span<const std::shared_ptr<const Engine>> engines, const SessionOptions& options,
                      const AdapterBytes& adapters, int64_t available);

}  // namespace chorus
