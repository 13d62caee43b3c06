// The KV cache: its size for a whole model, and its memory on one rank.
//
// All KV groups of the model take their blocks from one pool (models/kv_groups.h). In a block of a group, the group's
// layers on this rank have places 0, 1, ...; the memory of the pool is [places][blocks].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/config.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/backend.h"
#include "models/model_spec.h"

namespace chorus {

struct KvCacheOptions {
  int32_t tokens_per_block = 0;              // a power of two
  int64_t max_seq_len = 0;                   // tokens of the longest sequence
  std::vector<int32_t> attention_windows{};  // SessionOptions::attention_windows
};

// The cache of a whole model, over all ranks.
struct KvCacheShape {
  std::vector<int32_t> windows;  // by KV group, as in KvGroup::window
  int64_t block_bytes = 0;       // of one block of the pool
  int64_t token_bytes = 0;       // of the keys and values of one token in all layers
};
KvCacheShape kvCacheShape(const ModelConfig& config, const KvCacheOptions& options);

// The cache of one rank.
class RankKvCache {
 public:
  // rank_spec: rankSpec() of this rank. Allocates nothing.
  RankKvCache(const ModelConfig& config, const ModelSpec& rank_spec, int32_t rank, const KvCacheOptions& options);

  int64_t blockBytes() const;
  // Allocates num_blocks blocks. Throws Error(kExhausted).
  void allocate(Backend& backend, int64_t num_blocks);
  // The rank's layers. They have memory after allocate().
  std::span<const KvLayer> layers() const { return layers_; }
  // Copies blocks in all layers, in order.
  void copy(std::span<const BlockCopy> copies, Backend& backend, Stream stream) const;

 private:
  std::vector<KvLayer> layers_;
  std::vector<int32_t> place_of_;  // [layers]
  std::vector<KvLayer> places_;    // for each place, the layer with the largest blocks
  DeviceBuffer pool_;
};

}  // namespace chorus
