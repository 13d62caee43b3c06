#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/error.h"
#include "kernels/linear/fixed_point.h"
#include "kernels/linear/panel_formats.h"

namespace chorus {

void packTile(const float* const* rows, int count, int64_t inputs, void* tile) {
  auto* dst = static_cast<float*>(tile);
  // Copies a cache line of every row at a time, because rows that are far apart would otherwise evict each other.
  constexpr int64_t kLine = 16;
  const int64_t whole = inputs / 4 * 4;
  for (int64_t i0 = 0; i0 < whole; i0 += kLine) {
    const int64_t i1 = std::min(whole, i0 + kLine);
    for (int r = 0; r < count; ++r) {
      for (int64_t i = i0; i < i1; i += 4) std::memcpy(dst + i * count + r * 4, rows[r] + i, 4 * sizeof(float));
    }
  }
  if (whole == inputs) return;
  for (int r = 0; r < count; ++r) {
    float* last = dst + whole * count + r * 4;
    std::fill(last, last + 4, 0.0f);
    std::copy(rows[r] + whole, rows[r] + inputs, last);
  }
}

std::span<const DType> panelFormats() {
  static constexpr DType kFormats[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt8, DType::kInt4};
  return kFormats;
}

IsaTable<const PanelKernels*> panelKernels(const WeightFormat& format) {
  assert(format.activations != InputFormat::kInt8PerToken || (format.dtype == DType::kInt8 && format.group == 0));
  switch (format.dtype) {
    case DType::kFloat32:
      return f32PanelKernels();
    case DType::kFloat16:
      return f16PanelKernels();
    case DType::kBFloat16:
      return bf16PanelKernels();
    // Scales have the model's type, except those of an adapter's int8 A and B, which are float32 in every model.
    case DType::kInt8:
      return format.scale_dtype == DType::kFloat32 ? int8PanelKernels() : int8FixedPanelKernels(format);
    case DType::kInt4:
      return format.scale_dtype == DType::kFloat32 ? int4PanelKernels() : int4FixedPanelKernels(format);
    default:
      fail(ErrorCode::kUnsupported, "CPU linear does not support weights of type {}", dtypeName(format.dtype));
  }
}

}  // namespace chorus
