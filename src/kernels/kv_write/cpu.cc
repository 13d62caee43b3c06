#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_write/cpu.cc"
#include <hwy/foreach_target.h>
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/kv_write/cpu.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

void addBias(const float* bias, float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] += bias[i];
}

// x = x / sqrt(squares / count + epsilon) * weight, with the arithmetic of the op rms_norm.
void normalise(const float* weight, float squares, int64_t count, float epsilon, int64_t size, float* x) {
  const FloatVec scale = hn::Set(Floats(), 1.0f / std::sqrt(squares / static_cast<float>(count) + epsilon));
  for (int64_t c = 0; c < size; c += kFloatLanes) {
    storeColumns(hn::Mul(hn::Mul(loadColumns(x, c, size), scale), loadColumns(weight, c, size)), x, c, size);
  }
}

void normaliseHeads(const float* weight, float epsilon, int64_t heads, int64_t size, float* head) {
  for (int64_t h = 0; h < heads; ++h, head += size) {
    const float sum = sumOfColumns(size, [=](int64_t c, FloatVec squares) HWY_ATTR {
      const FloatVec x = loadColumns(head, c, size);
      return mulAdd(x, x, squares);
    });
    normalise(weight, sum, size, epsilon, size, head);
  }
}

// q, k: of row `at` of the step.
void normaliseQueryAndKey(const HeadNorms& norms, const StepGroups& groups, int64_t at, int64_t heads, int64_t kv_heads,
                          int64_t size, float* q, float* k) {
  const float* query = normOfRow(groups[norms.query_groups], at, {norms.query, nullptr}).weight;
  const float* key = normOfRow(groups[norms.key_groups], at, {norms.key, nullptr}).weight;
  if (norms.row_squares == nullptr) {
    normaliseHeads(query, norms.epsilon, heads, size, q);
    normaliseHeads(key, norms.epsilon, kv_heads, size, k);
  } else {
    const float* squares = norms.row_squares + 2 * at;
    normalise(query + norms.query_begin, squares[0], norms.query_count, norms.epsilon, heads * size, q);
    normalise(key + norms.key_begin, squares[1], norms.key_count, norms.epsilon, kv_heads * size, k);
  }
}

void scaleQueries(float factor, float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

void rotateHalves(const float* cos, const float* sin, int64_t half, float* head) {
  const Floats d;
  int64_t i = 0;
  for (; i + kFloatLanes <= half; i += kFloatLanes) {
    const FloatVec a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + half + i);
    const FloatVec c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + half + i);
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cos[i] - b * sin[i];
    head[half + i] = b * cos[i] + a * sin[i];
  }
}

void rotatePairs(const float* cos, const float* sin, int64_t half, float* head) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

template <typename T>
void writeCache(const KvLayer& kv, std::span<const int32_t> block_table, int64_t position, const float* k,
                const float* v) {
  T* block = reinterpret_cast<T*>(kvBlock(kv, block_table, position));
  const int64_t keys_together = keysTogether(kv), values_together = valuesTogether(kv);
  const int64_t key_step = keys_together * kvRunPositions(kv);
  for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
    T* key = block + keyIndex(kv, head, position, 0);
    T* value = block + valueIndex(kv, head, position, 0);
    const float* from = k + head * kv.head_size;
    for (int64_t d = 0; d < kv.head_size; d += keys_together, key += key_step) {
      for (int64_t i = 0; i < keys_together; ++i) key[i] = fromFloat<T>(from[d + i]);
    }
    for (int64_t d = 0; d < kv.head_size; ++d) value[d * values_together] = fromFloat<T>(v[head * kv.head_size + d]);
  }
}

void kvWriteRows(const KvWriteArgs& args, const StepGroups& groups, const SequenceSpan& sequence, int64_t begin,
                 int64_t end) {
  const KvLayer& kv = args.kv;
  const int64_t head_size = kv.head_size;
  const int64_t rotated_heads = int64_t{args.num_heads} + kv.num_kv_heads;
  const int64_t half = args.rope.rotary_dim / 2;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t position = sequence.first_position + i;
    float* row = args.qkv.row(sequence.row_begin + i);
    if (args.bias != nullptr) addBias(args.bias, row, (rotated_heads + kv.num_kv_heads) * head_size);
    if (args.norms.query != nullptr) {
      normaliseQueryAndKey(args.norms, groups, sequence.row_begin + i, args.num_heads, kv.num_kv_heads, head_size, row,
                           row + args.num_heads * head_size);
    }
    const float* cos = args.rope.cos + position * half;
    const float* sin = args.rope.sin + position * half;
    const auto rotate = args.rope.interleaved ? &rotatePairs : &rotateHalves;
    for (int64_t head = 0; half > 0 && head < rotated_heads; ++head) rotate(cos, sin, half, row + head * head_size);
    if (args.query_scales != nullptr) scaleQueries(args.query_scales[position], row, args.num_heads * head_size);
    const float* k = row + args.num_heads * head_size;
    const float* v = row + rotated_heads * head_size;
    switch (kv.dtype) {
      case DType::kBFloat16:
        writeCache<bf16>(kv, sequence.block_tables[kv.group], position, k, v);
        break;
      case DType::kFloat16:
        writeCache<f16>(kv, sequence.block_tables[kv.group], position, k, v);
        break;
      default:
        writeCache<float>(kv, sequence.block_tables[kv.group], position, k, v);
    }
  }
}

using KvWriteRows = void (*)(const KvWriteArgs&, const StepGroups&, const SequenceSpan&, int64_t, int64_t);
KvWriteRows rows() { return &kvWriteRows; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
namespace {
using KvWriteRows = void (*)(const KvWriteArgs&, const StepGroups&, const SequenceSpan&, int64_t, int64_t);
IsaTable<KvWriteRows> table() { CHORUS_ISA_TABLE(KvWriteRows, rows); }
}  // namespace

void kvWriteCpu(const KvWriteArgs& args, const StepBatch& batch, CpuWorkspace& workspace) {
  const KvWriteRows run = workspace.select(Op::kKvWrite, table());
  workspace.forEachPiece(batch.rows(), args.qkv.cols, [&](int64_t begin, int64_t end, int) {
    for (const SequenceSpan& sequence : batch.sequences) {
      const int64_t from = std::max<int64_t>(begin - sequence.row_begin, 0);
      const int64_t to = std::min<int64_t>(end - sequence.row_begin, sequence.num_rows);
      if (from < to) run(args, batch.groups, sequence, from, to);
    }
  });
}

std::vector<Variant> kvWriteVariants() { return variantsOf(Op::kKvWrite, table()); }
}  // namespace chorus
#endif
