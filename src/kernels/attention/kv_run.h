// The keys and values of one run of positions as panels, in the cache itself where they stand so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/kv_layout.h"

namespace chorus {

// What the panel kernels of the cache's type take: keys are kAttentionRun outputs of head_size inputs, values head_size
// outputs of kAttentionRun inputs.
struct KvRun {
  const std::byte* keys = nullptr;
  int64_t key_stride = 0;  // bytes from an input (bfloat16: an input pair) to the next
  const std::byte* values = nullptr;
  int64_t value_stride = 0;
  const std::byte* last_values = nullptr;  // inputs from the last multiple of 4 on, when these are an odd number
};

class KvRunReader {
 public:
  explicit KvRunReader(const KvLayer& kv);

  // Bytes of one output of an input (pair): panels are 16 of them apart.
  int64_t unitBytes() const { return unit_bytes_; }
  // Bytes of scratch that a reader needs, a multiple of 64.
  int64_t scratchBytes() const { return key_bytes_ + value_bytes_; }
  // Positions [run, min(run + kAttentionRun, end)) of one KV head, run a multiple of kAttentionRun. Outputs of
  // positions from `end` on are anything, inputs of them are not to be read, but the other half of a pair is 0. Good
  // until the scratch is written again.
  KvRun read(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end, std::byte* scratch) const;
  // Where a whole run stands in the cache, to be prefetched: keys and values of so many bytes each, null where they are
  // scattered.
  struct Place {
    const std::byte* keys = nullptr;
    const std::byte* values = nullptr;
    int64_t bytes = 0;
  };
  Place place(std::span<const int32_t> block_table, int64_t kv_head, int64_t run) const;

 private:
  template <typename T>
  void gather(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end, T* keys,
              T* values) const;

  KvLayer kv_;
  int64_t pair_;  // inputs side by side
  int64_t unit_bytes_;
  bool in_place_;
  int64_t value_stride_;  // of gathered values
  int64_t key_bytes_, value_bytes_;
};

}  // namespace chorus
