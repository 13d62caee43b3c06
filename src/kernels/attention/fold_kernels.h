// The parts of attention that are not products, one set of functions for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention/kv_layout.h"
#include "kernels/cpu/isa_table.h"

namespace chorus {

// A query's running softmax: out holds sum(e^(score - max) v), to be divided by sum.
struct SoftmaxState {
  float max;
  float sum;
};

struct FoldKernels {
  // Keys or values of positions [run, min(run + kAttentionRun, end)) of one KV head, widened. Slots of later
  // positions and value columns past head_size are left as they are: nothing that is kept depends on them.
  // keys: [head_size][kAttentionRun]. values: [kAttentionRun][value_stride], value_stride a multiple of 16.
  void (*gather_keys)(const KvLayer& kv, std::span<const int32_t> block_table, int64_t kv_head, int64_t run,
                      int64_t end, float* keys);
  void (*gather_values)(const KvLayer& kv, std::span<const int32_t> block_table, int64_t kv_head, int64_t run,
                        int64_t end, int64_t value_stride, float* values);
  // scores[kAttentionRun] become weights e^(score * scale - max), 0 from slot `valid` on (valid may be <= 0);
  // state and out[head_size] move to the new maximum.
  void (*fold)(float* scores, int64_t valid, float scale, SoftmaxState& state, float* out, int64_t head_size);
  // out /= sum.
  void (*finish)(const SoftmaxState& state, float* out, int64_t head_size);
};
IsaTable<const FoldKernels*> foldKernels();

}  // namespace chorus
