#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention.h"

namespace chorus::reference {
namespace {

// Keys and values of one head: element d of a position is at [position * head_size + d].
struct HeadCache {
  std::vector<float> keys, values;

  HeadCache(const KvLayer& kv, const SequenceSpan& sequence, int64_t kv_head) {
    for (int64_t position = 0; position < sequence.first_position + sequence.num_rows; ++position) {
      const void* block = kvBlock(kv, sequence.block_table, position);
      for (int64_t d = 0; d < kv.head_size; ++d) {
        keys.push_back(loadAsFloat(block, kv.dtype, keyIndex(kv, kv_head, position, d)));
        values.push_back(loadAsFloat(block, kv.dtype, valueIndex(kv, kv_head, position, d)));
      }
    }
  }
};

// One row of one head, which attends to the first `positions` positions.
void attend(const float* q, const HeadCache& cache, int64_t positions, int64_t head_size, float scale, float* out) {
  std::vector<float> p(static_cast<size_t>(positions));
  float max = -INFINITY;
  for (int64_t k = 0; k < positions; ++k) {
    const float* key = cache.keys.data() + k * head_size;
    float score = 0;
    for (int64_t d = 0; d < head_size; ++d) score += q[d] * key[d];
    p[static_cast<size_t>(k)] = score * scale;
    max = std::max(max, score * scale);
  }
  float sum = 0;
  for (float& value : p) sum += value = std::exp(value - max);
  for (int64_t d = 0; d < head_size; ++d) {
    float mean = 0;
    for (int64_t k = 0; k < positions; ++k) {
      mean += p[static_cast<size_t>(k)] * cache.values[static_cast<size_t>(k * head_size + d)];
    }
    out[d] = mean / sum;
  }
}
}  // namespace

void attention(const AttentionArgs& args, const StepBatch& batch) {
  const KvLayer& kv = args.kv;
  const int64_t heads_per_kv_head = args.num_heads / kv.num_kv_heads;
  for (const SequenceSpan& sequence : batch.sequences) {
    for (int64_t kv_head = 0; kv_head < kv.num_kv_heads; ++kv_head) {
      const HeadCache cache(kv, sequence, kv_head);
      for (int64_t i = 0; i < sequence.num_rows; ++i) {
        const int64_t row = sequence.row_begin + i;
        for (int64_t head = kv_head * heads_per_kv_head; head < (kv_head + 1) * heads_per_kv_head; ++head) {
          attend(args.q.data + row * args.q.stride + head * kv.head_size, cache, sequence.first_position + i + 1,
                 kv.head_size, args.scale, args.out.data + row * args.out.stride + head * kv.head_size);
        }
      }
    }
  }
}

}  // namespace chorus::reference
