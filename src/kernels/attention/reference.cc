#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention.h"

namespace chorus::reference {

void attention(const AttentionArgs& args, const StepBatch& batch) {
  const KvLayer& kv = args.kv;
  const int64_t head_size = kv.head_size;
  std::vector<float> p;
  for (const SequenceSpan& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.num_rows; ++i) {
      const int64_t keys = int64_t{sequence.first_position} + i + 1;
      p.resize(static_cast<size_t>(keys));
      for (int32_t head = 0; head < args.num_heads; ++head) {
        const int32_t kv_head = head / (args.num_heads / kv.num_kv_heads);
        const float* q = args.q.data + (sequence.row_begin + i) * args.q.stride + head * head_size;
        float* out = args.out.data + (sequence.row_begin + i) * args.out.stride + head * head_size;
        float max = -INFINITY;
        for (int64_t k = 0; k < keys; ++k) {
          float score = 0;
          for (int64_t d = 0; d < head_size; ++d) {
            score += q[d] * loadAsFloat(kvBlock(kv, sequence.block_table, k), kv.dtype, keyIndex(kv, kv_head, k, d));
          }
          p[static_cast<size_t>(k)] = score * args.scale;
          max = std::max(max, score * args.scale);
        }
        float sum = 0;
        for (float& value : p) sum += value = std::exp(value - max);
        for (int64_t d = 0; d < head_size; ++d) {
          float mean = 0;
          for (int64_t k = 0; k < keys; ++k) {
            mean += p[static_cast<size_t>(k)] *
                    loadAsFloat(kvBlock(kv, sequence.block_table, k), kv.dtype, valueIndex(kv, kv_head, k, d));
          }
          out[d] = mean / sum;
        }
      }
    }
  }
}

}  // namespace chorus::reference
