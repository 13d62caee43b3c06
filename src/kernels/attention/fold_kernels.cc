#include "kernels/cpu/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fold_kernels.cc"
#include <hwy/foreach_target.h>
#include "kernels/attention/attention.h"
#include "kernels/attention/fold_kernels.h"
#include "kernels/cpu/math-inl.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
void gatherKeysAs(const KvLayer& kv, std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end,
                  float* keys) {
  const int64_t head_size = kv.head_size;
  const int64_t run_end = std::min(end, run + kAttentionRun);
  for (int64_t position = run; position < run_end;) {
    const int64_t in_block = kv.tokens_per_block - position % kv.tokens_per_block;
    const int64_t count = std::min(in_block, run_end - position);
    const T* from = reinterpret_cast<const T*>(kvBlock(kv, block_table, position)) + keyIndex(kv, kv_head, position, 0);
    float* to = keys + (position - run);
    for (int64_t d = 0; d < head_size; ++d) widen(from + d * kv.tokens_per_block, count, to + d * kAttentionRun);
    position += count;
  }
}

template <typename T>
void gatherValuesAs(const KvLayer& kv, std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end,
                    int64_t value_stride, float* values) {
  const int64_t head_size = kv.head_size;
  const int64_t run_end = std::min(end, run + kAttentionRun);
  for (int64_t position = run; position < run_end; ++position) {
    const T* block = reinterpret_cast<const T*>(kvBlock(kv, block_table, position));
    float* to = values + (position - run) * value_stride;
    widen(block + valueIndex(kv, kv_head, position, 0), head_size, to);
  }
}

void gatherKeys(const KvLayer& kv, std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end,
                float* keys) {
  switch (kv.dtype) {
    case DType::kBFloat16:
      return gatherKeysAs<bf16>(kv, block_table, kv_head, run, end, keys);
    case DType::kFloat16:
      return gatherKeysAs<f16>(kv, block_table, kv_head, run, end, keys);
    default:
      return gatherKeysAs<float>(kv, block_table, kv_head, run, end, keys);
  }
}

void gatherValues(const KvLayer& kv, std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end,
                  int64_t stride, float* values) {
  switch (kv.dtype) {
    case DType::kBFloat16:
      return gatherValuesAs<bf16>(kv, block_table, kv_head, run, end, stride, values);
    case DType::kFloat16:
      return gatherValuesAs<f16>(kv, block_table, kv_head, run, end, stride, values);
    default:
      return gatherValuesAs<float>(kv, block_table, kv_head, run, end, stride, values);
  }
}

void scaleRow(float scale, float* row, int64_t count) {
  const Floats d;
  const FloatVec factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes) hn::StoreU(hn::Mul(hn::LoadU(d, row + i), factor), d, row + i);
  for (; i < count; ++i) row[i] *= scale;
}

// All lanes take part whatever `valid` is: a masked slot adds exactly 0, so the order of the sum never
// changes.
void fold(float* scores, int64_t valid, float scale, SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  if (valid <= 0) {
    std::fill(scores, scores + kAttentionRun, 0.0f);
    return;
  }
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const FloatVec lane = hn::Iota(d, 0.0f);
  const FloatVec scales = hn::Set(d, scale);
  FloatVec max = hn::Set(d, state.max);
  for (int64_t i = 0; i < kAttentionRun; i += kFloatLanes) {
    const auto used = hn::Lt(lane, hn::Set(d, static_cast<float>(valid - i)));
    const FloatVec score = hn::IfThenElse(used, hn::Mul(hn::LoadU(d, scores + i), scales), lowest);
    hn::StoreU(score, d, scores + i);
    max = hn::Max(max, score);
  }
  const float new_max = hn::GetLane(hn::MaxOfLanes(d, max));
  const FloatVec maxes = hn::Set(d, new_max);
  FloatVec sum = hn::Zero(d);
  for (int64_t i = 0; i < kAttentionRun; i += kFloatLanes) {
    const FloatVec weight = exponential(hn::Sub(hn::LoadU(d, scores + i), maxes));
    hn::StoreU(weight, d, scores + i);
    sum = hn::Add(sum, weight);
  }
  const float correction = hn::GetLane(exponential(hn::Set(d, state.max - new_max)));
  state.max = new_max;
  state.sum = state.sum * correction + hn::GetLane(hn::SumOfLanes(d, sum));
  if (correction != 1.0f) scaleRow(correction, out, head_size);
}

void finish(const SoftmaxState& state, float* out, int64_t head_size) {
  const Floats d;
  const FloatVec sum = hn::Set(d, state.sum);
  // A masked slot may have turned an underflow's -0 into +0; adding +0 gives both one form.
  const FloatVec zero = hn::Zero(d);
  int64_t i = 0;
  for (; i + kFloatLanes <= head_size; i += kFloatLanes) {
    hn::StoreU(hn::Add(hn::Div(hn::LoadU(d, out + i), sum), zero), d, out + i);
  }
  const int64_t left = head_size - i;
  if (left > 0) storeSome(hn::Add(hn::Div(loadSome(out + i, left), sum), zero), left, out + i);
}

const FoldKernels* kernels() {
  static const FoldKernels table = {&gatherKeys, &gatherValues, &fold, &finish};
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chorus {
IsaTable<const FoldKernels*> foldKernels() { CHORUS_ISA_TABLE(const FoldKernels*, kernels); }
}  // namespace chorus
#endif
