#include "kernels/attention/kv_run.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/tensor.h"

namespace chorus {

KvRunReader::KvRunReader(const KvLayer& kv)
    : kv_(kv),
      pair_(kv.dtype == DType::kBFloat16 ? 2 : 1),
      // Requires whole runs in a block, and values in whole panels.
      in_place_(kv.tokens_per_block >= kAttentionRun && kv.head_size % kPanelCols == 0) {
  const int64_t column_bytes = pair_ * static_cast<int64_t>(dtypeSize(kv.dtype));
  key_stride_ = kAttentionRun * column_bytes;
  value_stride_ = roundUp(kv.head_size, kPanelCols) * column_bytes;
  key_bytes_ = in_place_ ? 0 : roundUp(kv.head_size, pair_) / pair_ * key_stride_;
  value_bytes_ = in_place_ ? 0 : valueBytes();
}

template <typename T>
void KvRunReader::gather(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t begin, int64_t end,
                         T* keys, T* values) const {
  const int64_t head_size = kv_.head_size, together = keysTogether(kv_), value_cols = roundUp(head_size, kPanelCols);
  const auto value_together = valuesTogether(kv_);
  const int64_t run_end = std::min(end, run + kAttentionRun);
  const int64_t first = std::max(run, begin / kv_.tokens_per_block * kv_.tokens_per_block);
  clearValues(reinterpret_cast<std::byte*>(values), first - run);
  for (int64_t position = first; position < run_end;) {
    const int64_t count = std::min(kvRunPositions(kv_) - position % kvRunPositions(kv_), run_end - position);
    const int64_t slot = position - run;
    const T* block = reinterpret_cast<const T*>(kvBlock(kv_, block_table, position));
    const T* key = block + keyIndex(kv_, kv_head, position, 0);
    for (int64_t d = 0; d < head_size; d += together, key += together * kvRunPositions(kv_)) {
      T* to = keys + d / pair_ * pair_ * kAttentionRun + slot * pair_ + d % pair_;
      if (together == pair_) {
        std::memcpy(to, key, static_cast<size_t>(count * together) * sizeof(T));
      } else {
        for (int64_t i = 0; i < count; ++i) to[i * pair_] = key[i];
      }
    }
    const T* value = block + valueIndex(kv_, kv_head, position, 0);
    T* to = values + slot / pair_ * pair_ * value_cols + slot % pair_;
    if (value_together == pair_) {  // blocks with pairs start at an even position
      for (int64_t i = 0; i < count; i += pair_, value += head_size * pair_, to += value_cols * pair_) {
        std::memcpy(to, value, static_cast<size_t>(head_size * pair_) * sizeof(T));
      }
    } else {
      for (int64_t d = 0; d < head_size; ++d) to[d * pair_] = value[d];
    }
    position += count;
  }
}

KvRun KvRunReader::read(std::span<const int32_t> block_table, int64_t kv_head, int64_t run, int64_t begin, int64_t end,
                        std::byte* scratch) const {
  if (in_place_) return place(block_table, kv_head, run);
  std::byte* values = scratch + key_bytes_;
  if (dtypeSize(kv_.dtype) == 4) {
    gather(block_table, kv_head, run, begin, end, reinterpret_cast<uint32_t*>(scratch),
           reinterpret_cast<uint32_t*>(values));
  } else {
    gather(block_table, kv_head, run, begin, end, reinterpret_cast<uint16_t*>(scratch),
           reinterpret_cast<uint16_t*>(values));
  }
  return {scratch, values};
}

KvRun KvRunReader::place(std::span<const int32_t> block_table, int64_t kv_head, int64_t run) const {
  if (!in_place_) return {};
  const auto size = dtypeSize(kv_.dtype);
  const std::byte* block = kvBlock(kv_, block_table, run);
  return {block + keyIndex(kv_, kv_head, run, 0) * size, block + valueIndex(kv_, kv_head, run, 0) * size};
}

const std::byte* KvRunReader::valuesFrom(const KvRun& run, int64_t begin, std::byte* copy) const {
  std::memcpy(copy, run.values, static_cast<size_t>(valueBytes()));
  clearValues(copy, begin);
  return copy;
}

void KvRunReader::clearValues(std::byte* values, int64_t end) const {
  const auto size = static_cast<int64_t>(dtypeSize(kv_.dtype));
  for (int64_t slot = 0; slot < end; ++slot) {
    std::byte* value = values + slot / pair_ * value_stride_ + slot % pair_ * size;
    for (int64_t d = 0; d < kv_.head_size; ++d) {
      std::memset(value + d * pair_ * size, 0, static_cast<size_t>(size));
    }
  }
}

bool KvRunReader::finite(const SoftmaxKernels& kernels, const KvRun& run, int64_t begin, int64_t end) const {
  for (int64_t slot = begin; slot < end; ++slot) {
    const std::byte* row = run.values + slot / pair_ * value_stride_;
    bool found = false;
    switch (kv_.dtype) {
      case DType::kBFloat16:
        found = kernels.any(row, kv_.head_size, slot % 2 == 0 ? 0x7f80u : 0x7f800000u);
        break;
      case DType::kFloat16:
        found = kernels.any(row, (kv_.head_size + 1) / 2, 0x7c00u) || kernels.any(row, kv_.head_size / 2, 0x7c000000u);
        break;
      default:
        found = kernels.any(row, kv_.head_size, 0x7f800000u);
    }
    if (found) return false;
  }
  return true;
}

}  // namespace chorus
