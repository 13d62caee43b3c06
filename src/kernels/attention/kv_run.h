// The keys and values of one run of positions as panels, in the cache itself where they stand so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/fold_kernels.h"
#include "kernels/attention/kv_layout.h"

namespace chorus {

// What the products of the cache's type take: keys are kAttentionRun outputs of head_size inputs, values head_size
// outputs of kAttentionRun inputs.
struct KvRun {
  const std::byte* keys = nullptr;  // null: no run
  const std::byte* values = nullptr;
};

class KvRunReader {
 public:
  explicit KvRunReader(const KvLayer& kv);

  // Bytes from an input (bfloat16: an input pair) to the next.
  int64_t keyStride() const { return key_stride_; }
  int64_t valueStride() const { return value_stride_; }
  // Bytes of scratch that a reader needs, a multiple of 64.
  int64_t scratchBytes() const { return key_bytes_ + value_bytes_; }
  // Positions [run, min(run + kAttentionRun, end)) of one KV head, run a multiple of kAttentionRun. Outputs of
  // positions from `end` on are anything, inputs of them, the other half of a pair too, are not to be used. Good until
  // the scratch is written again.
  KvRun read(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end, std::byte* scratch) const;
  // Where a whole run stands in the cache, to be prefetched; nowhere if runs are gathered.
  KvRun place(std::span<const int32_t> block_table, int64_t kv_head, int64_t run) const;
  // Whether the values of slots [begin, end) of a run are neither infinite nor NaN.
  bool finite(const FoldKernels& kernels, const KvRun& run, int64_t begin, int64_t end) const;

 private:
  template <typename T>
  void gather(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end, T* keys,
              T* values) const;

  KvLayer kv_;
  int64_t pair_;  // inputs side by side
  bool in_place_;
  int64_t key_stride_, value_stride_;
  int64_t key_bytes_, value_bytes_;
};

}  // namespace chorus
