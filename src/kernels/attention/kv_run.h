// Reads the keys and values of one run of positions as panels: in place if the layout of the cache allows it, otherwise
// copied to scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/attention/softmax_kernels.h"

namespace chorus {

// Panels in the form that AttentionProducts read. Keys are kAttentionRun outputs of head_size inputs, values are
// head_size outputs of kAttentionRun inputs.
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
  // Bytes from the first kAttentionRun inputs of a run's keys (a piece of AttentionProduct) to the next.
  int64_t keyPieceBytes() const { return kAttentionRun / pair_ * key_stride_; }
  // Bytes of scratch that read() needs, a multiple of 64.
  int64_t scratchBytes() const { return key_bytes_ + value_bytes_; }
  // Bytes of a run's values.
  int64_t valueBytes() const { return kAttentionRun / pair_ * value_stride_; }
  // Returns positions [run, run + kAttentionRun) of one KV head, of which those in [begin, end) are used; `run` is a
  // multiple of kAttentionRun. Valid until the scratch is overwritten.
  //   - Before `begin`: blocks that end before it are not read. Their slots have undefined keys and zero values.
  //   - From `end` on: keys are undefined, and values must not be used, not even as the second half of a pair.
  KvRun read(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t begin, int64_t end,
             std::byte* scratch) const;
  // Returns the address of a whole run in the cache, for prefetching; null pointers if runs are copied.
  KvRun place(std::span<const int32_t> block_table, int64_t kv_head, int64_t run) const;
  // Copies a run's values to `copy` (valueBytes() bytes), sets those of the slots before `begin` to zero, and returns
  // `copy`.
  const std::byte* valuesFrom(const KvRun& run, int64_t begin, std::byte* copy) const;
  // Whether all values of slots [begin, end) of a run are finite.
  bool finite(const SoftmaxKernels& kernels, const KvRun& run, int64_t begin, int64_t end) const;

 private:
  template <typename T>
  void gather(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t begin, int64_t end, T* keys,
              T* values) const;
  // Sets the values of slots [0, end) to zero.
  void clearValues(std::byte* values, int64_t end) const;

  KvLayer kv_;
  int64_t pair_;  // adjacent inputs in a panel: 2 for bfloat16, otherwise 1
  bool in_place_;
  int64_t key_stride_, value_stride_;
  int64_t key_bytes_, value_bytes_;
};

}  // namespace chorus
