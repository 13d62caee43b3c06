#include "kernels/attention/kv_run.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/tensor.h"

namespace chorus {
namespace {
int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
}  // namespace

KvRunReader::KvRunReader(const KvLayer& kv)
    : kv_(kv),
      pair_(kv.dtype == DType::kBFloat16 ? 2 : 1),
      unit_bytes_(pair_ * static_cast<int64_t>(dtypeSize(kv.dtype))),
      // Whole runs in a block, whole panels of values.
      in_place_(kv.tokens_per_block >= kAttentionRun && kv.head_size % kPanelCols == 0),
      value_stride_(in_place_ ? kv.head_size * unit_bytes_ : roundUp(kv.head_size, kPanelCols) * unit_bytes_),
      key_bytes_(in_place_ ? 0 : roundUp(kv.head_size, pair_) / pair_ * kAttentionRun * unit_bytes_),
      // In place: the last pairs of positions only.
      value_bytes_(roundUp(in_place_ ? 2 * value_stride_ : kAttentionRun / pair_ * value_stride_, 64)) {}

template <typename T>
void KvRunReader::gather(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end, T* keys,
                         T* values) const {
  const int64_t head_size = kv_.head_size, together = keysTogether(kv_), value_cols = roundUp(head_size, kPanelCols);
  const auto value_together = valuesTogether(kv_);
  const int64_t run_end = std::min(end, run + kAttentionRun);
  for (int64_t position = run; position < run_end;) {
    const int64_t count = std::min(kv_.tokens_per_block - position % kv_.tokens_per_block, run_end - position);
    const int64_t slot = position - run;
    const T* block = reinterpret_cast<const T*>(kvBlock(kv_, block_table, position));
    const T* key = block + keyIndex(kv_, kv_head, position, 0);
    for (int64_t d = 0; d < head_size; d += together, key += together * kv_.tokens_per_block) {
      T* to = keys + d / pair_ * pair_ * kAttentionRun + slot * pair_ + d % pair_;
      if (together == pair_) {
        std::memcpy(to, key, static_cast<size_t>(count * together) * sizeof(T));
      } else {
        for (int64_t i = 0; i < count; ++i) to[i * pair_] = key[i];
      }
    }
    const T* value = block + valueIndex(kv_, kv_head, position, 0);
    T* to = values + slot / pair_ * pair_ * value_cols + slot % pair_;
    if (value_together == pair_) {  // blocks of pairs start at an even position
      for (int64_t i = 0; i < count; i += pair_, value += head_size * pair_, to += value_cols * pair_) {
        std::memcpy(to, value, static_cast<size_t>(head_size * pair_) * sizeof(T));
      }
    } else {
      for (int64_t d = 0; d < head_size; ++d) to[d * pair_] = value[d];
    }
    position += count;
  }
  if (pair_ == 2 && head_size % 2 == 1) {
    for (int64_t i = 0; i < kAttentionRun; ++i) keys[((head_size - 1) * kAttentionRun) + 2 * i + 1] = T{};
  }
  const int64_t slots = run_end - run;
  if (pair_ == 2 && slots % 2 == 1) {
    for (int64_t d = 0; d < head_size; ++d) values[(slots - 1) * value_cols + 2 * d + 1] = T{};
  }
}

KvRun KvRunReader::read(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t end,
                        std::byte* scratch) const {
  KvRun result;
  result.value_stride = value_stride_;
  if (!in_place_) {
    std::byte* values = scratch + key_bytes_;
    if (dtypeSize(kv_.dtype) == 4) {
      gather(block_table, kv_head, run, end, reinterpret_cast<uint32_t*>(scratch), reinterpret_cast<uint32_t*>(values));
    } else {
      gather(block_table, kv_head, run, end, reinterpret_cast<uint16_t*>(scratch), reinterpret_cast<uint16_t*>(values));
    }
    result.keys = scratch;
    result.key_stride = kAttentionRun * unit_bytes_;
    result.values = values;
    return result;
  }
  const auto size = dtypeSize(kv_.dtype);
  const std::byte* block = kvBlock(kv_, block_table, run);
  result.keys = block + keyIndex(kv_, kv_head, run, 0) * size;
  result.key_stride = kv_.tokens_per_block * unit_bytes_;
  result.values = block + valueIndex(kv_, kv_head, run, 0) * size;
  const int64_t count = end - run;
  if (pair_ == 2 && count < kAttentionRun && count % 2 == 1) {
    // The last position's other half may hold anything, and 0 times that is not always 0.
    const int64_t pairs = count % 4 / 2 + 1;
    const std::byte* from = result.values + count / 4 * 2 * value_stride_;
    std::memcpy(scratch, from, static_cast<size_t>(pairs * value_stride_));
    auto* last = reinterpret_cast<uint16_t*>(scratch + (pairs - 1) * value_stride_);
    for (int64_t d = 0; d < kv_.head_size; ++d) last[2 * d + 1] = 0;
    result.last_values = scratch;
  }
  return result;
}

KvRunReader::Place KvRunReader::place(std::span<const int32_t> block_table, int64_t kv_head, int64_t run) const {
  if (!in_place_) return {};
  const auto size = dtypeSize(kv_.dtype);
  const std::byte* block = kvBlock(kv_, block_table, run);
  return {.keys = kv_.tokens_per_block == kAttentionRun ? block + keyIndex(kv_, kv_head, run, 0) * size : nullptr,
          .values = block + valueIndex(kv_, kv_head, run, 0) * size,
          .bytes = kAttentionRun * kv_.head_size * static_cast<int64_t>(size)};
}

}  // namespace chorus
