#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention.h"

namespace chorus::reference {
namespace {

// Keys and values of one head: element d of a position is at [position * head_size + d].
struct HeadCache {
  std::vector<float> keys, values;

  // Positions before `first` are left zero.
  HeadCache(const KvLayer& kv, const SequenceSpan& sequence, int64_t kv_head, int64_t first)
      : keys(static_cast<size_t>(first * kv.head_size)), values(keys.size()) {
    for (int64_t position = first; position < sequence.first_position + sequence.num_rows; ++position) {
      const void* block = kvBlock(kv, sequence.block_tables[kv.group], position);
      for (int64_t d = 0; d < kv.head_size; ++d) {
        keys.push_back(loadAsFloat(block, kv.dtype, keyIndex(kv, kv_head, position, d)));
        values.push_back(loadAsFloat(block, kv.dtype, valueIndex(kv, kv_head, position, d)));
      }
    }
  }
};

float scoreOf(const AttentionScore& form, float slope, float product, int64_t distance) {
  float score = product * form.scale;
  if (form.softcap != 0) score = form.softcap * std::tanh(score / form.softcap);
  return score + slope * static_cast<float>(distance);
}

// Computes the attention of one row and one head.
void attend(const float* q, const HeadCache& cache, int64_t position, int64_t head_size, const AttentionArgs& args,
            float slope, float* out) {
  const int64_t first = args.mask.firstPosition(position), count = position + 1 - first;
  std::vector<float> p(static_cast<size_t>(count));
  float max = -INFINITY;
  for (int64_t i = 0; i < count; ++i) {
    const float* key = cache.keys.data() + (first + i) * head_size;
    float product = 0;
    for (int64_t d = 0; d < head_size; ++d) product += q[d] * key[d];
    const float score = scoreOf(args.score, slope, product, first + i - position);
    p[static_cast<size_t>(i)] = score;
    max = std::max(max, score);
  }
  float sum = 0;
  for (float& value : p) sum += value = std::exp(value - max);
  for (int64_t d = 0; d < head_size; ++d) {
    float mean = 0;
    for (int64_t i = 0; i < count; ++i) {
      mean += p[static_cast<size_t>(i)] * cache.values[static_cast<size_t>((first + i) * head_size + d)];
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
      const HeadCache cache(kv, sequence, kv_head, args.mask.firstPosition(sequence.first_position));
      for (int64_t i = 0; i < sequence.num_rows; ++i) {
        const int64_t row = sequence.row_begin + i;
        for (int64_t head = kv_head * heads_per_kv_head; head < (kv_head + 1) * heads_per_kv_head; ++head) {
          const float slope = args.score.slopes == nullptr ? 0 : args.score.slopes[head];
          attend(args.q.row(row) + head * kv.head_size, cache, sequence.first_position + i, kv.head_size, args, slope,
                 args.out.row(row) + head * kv.head_size);
        }
      }
    }
  }
}

}  // namespace chorus::reference
