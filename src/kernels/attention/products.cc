#include "kernels/attention/products.h"

#include <algorithm>

#include "base/error.h"

namespace chorus {

void packAttentionTile(const float* const* rows, int count, int64_t inputs, void* dst) {
  auto* to = static_cast<float*>(dst);
  for (int64_t piece = 0; piece < inputs; piece += kAttentionRun) {
    const int64_t some = std::min<int64_t>(kAttentionRun, inputs - piece);
    for (int r = 0; r < count; ++r, to += kAttentionRun) {
      std::copy(rows[r] + piece, rows[r] + piece + some, to);
      std::fill(to + some, to + kAttentionRun, 0.0f);
    }
  }
}

std::span<const DType> attentionTypes() {
  static constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  return kTypes;
}

IsaTable<const AttentionProducts*> attentionProducts(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return f32AttentionProducts();
    case DType::kFloat16:
      return f16AttentionProducts();
    case DType::kBFloat16:
      return bf16AttentionProducts();
    default:
      fail(ErrorCode::kUnsupported, "CPU attention does not support a KV cache of type {}", dtypeName(dtype));
  }
}

}  // namespace chorus
