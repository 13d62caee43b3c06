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

float squaresOf(const float* x, int64_t size) {
  float sum = 0;
  for (int64_t d = 0; d < size; ++d) sum += x[d] * x[d];
  return sum;
}

void normalise(const float* weight, float squares, int64_t count, float epsilon, int64_t size, float* x) {
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(count) + epsilon);
  for (int64_t d = 0; d < size; ++d) x[d] = x[d] * scale * weight[d];
}

// q, k: of row `at` of the step.
void normaliseQueryAndKey(const HeadNorms& norms, const StepGroups& groups, int64_t at, int64_t heads, int64_t kv_heads,
                          int64_t size, float* q, float* k) {
  const float* query = normOfRow(groups[norms.query_groups], at, {norms.query, nullptr}).weight;
  const float* key = normOfRow(groups[norms.key_groups], at, {norms.key, nullptr}).weight;
  if (norms.row_squares != nullptr) {
    const float* squares = norms.row_squares + 2 * at;
    normalise(query + norms.query_begin, squares[0], norms.query_count, norms.epsilon, heads * size, q);
    normalise(key + norms.key_begin, squares[1], norms.key_count, norms.epsilon, kv_heads * size, k);
    return;
  }
  for (float* head = q; head < q + heads * size; head += size)
    normalise(query, squaresOf(head, size), size, norms.epsilon, size, head);
  for (float* head = k; head < k + kv_heads * size; head += size)
    normalise(key, squaresOf(head, size), size, norms.epsilon, size, head);
}
}  // namespace

void kvWrite(const KvWriteArgs& args, const StepBatch& batch) {
  const KvLayer& kv = args.kv;
  const int64_t head_size = kv.head_size;
  const int64_t heads = args.num_heads + 2 * int64_t{kv.num_kv_heads};
  for (const SequenceSpan& sequence : batch.sequences) {
    for (int32_t i = 0; i < sequence.num_rows; ++i) {
      const int64_t position = int64_t{sequence.first_position} + i;
      float* row = args.qkv.row(sequence.row_begin + i);
      for (int64_t c = 0; args.bias != nullptr && c < heads * head_size; ++c) row[c] += args.bias[c];
      if (args.norms.query != nullptr) {
        normaliseQueryAndKey(args.norms, batch.groups, sequence.row_begin + i, args.num_heads, kv.num_kv_heads,
                             head_size, row, row + args.num_heads * head_size);
      }
      for (int64_t head = 0; head < args.num_heads + kv.num_kv_heads; ++head) {
        rotate(args.rope, position, row + head * head_size);
      }
      for (int64_t c = 0; args.query_scales != nullptr && c < args.num_heads * head_size; ++c) {
        row[c] *= args.query_scales[position];
      }
      std::byte* block = kvBlock(kv, sequence.block_tables[kv.group], position);
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
