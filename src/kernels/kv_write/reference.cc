#include <cmath>

#include "kernels/kv_write/kv_write.h"

namespace chorus::reference {
namespace {

void rotate(const RopeTable& rope, int64_t position, float* head) {
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float cos = rope.cos[position * half + i];
    const float sin = rope.sin[position * half + i];
    float& a = head[rope.interleaved ? 2 * i : i];
    float& b = head[rope.interleaved ? 2 * i + 1 : i + half];
    const float rotated = a * cos - b * sin;
    b = b * cos + a * sin;
    a = rotated;
  }
}

void normalise(const float* weight, float epsilon, int64_t size, float* head) {
  float sum = 0;
  for (int64_t d = 0; d < size; ++d) sum += head[d] * head[d];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(size) + epsilon);
  for (int64_t d = 0; d < size; ++d) head[d] = head[d] * scale * weight[d];
}
}  // namespace

void kvWrite(const KvWriteArgs& args, const StepBatch& batch) {
  const KvLayer& kv = args.kv;
  const int64_t head_size = kv.head_size;
  const int64_t heads = args.num_heads + 2 * int64_t{kv.num_kv_heads};
  for (const SequenceSpan& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.num_rows; ++i) {
      const int64_t position = int64_t{sequence.first_position} + i;
      float* row = args.qkv.data + (sequence.row_begin + i) * args.qkv.stride;
      for (int64_t c = 0; args.bias != nullptr && c < heads * head_size; ++c) row[c] += args.bias[c];
      const HeadNorms& norms = args.norms;
      const float* query = normOfRow(norms.query_groups, sequence.row_begin + i, {norms.query, nullptr}).weight;
      const float* key = normOfRow(norms.key_groups, sequence.row_begin + i, {norms.key, nullptr}).weight;
      for (int64_t head = 0; head < args.num_heads + kv.num_kv_heads; ++head) {
        const float* weight = head < args.num_heads ? query : key;
        if (weight != nullptr) normalise(weight, norms.epsilon, head_size, row + head * head_size);
        rotate(args.rope, position, row + head * head_size);
      }
      std::byte* block = kvBlock(kv, sequence.block_table, position);
      for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
        const float* k = row + (args.num_heads + head) * head_size;
        const float* v = k + kv.num_kv_heads * head_size;
        for (int64_t d = 0; d < head_size; ++d) {
          const size_t size = dtypeSize(kv.dtype);
          convertElements(k + d, DType::kFloat32, block + keyIndex(kv, head, position, d) * size, kv.dtype, 1);
          convertElements(v + d, DType::kFloat32, block + valueIndex(kv, head, position, d) * size, kv.dtype, 1);
        }
      }
    }
  }
}

}  // namespace chorus::reference
