#include "checkpoint/quantise_row.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/dtype.h"

namespace chorus {
namespace {

// Adding this number to a small float and subtracting it again rounds the float to the nearest integer, ties to even.
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23

// Rounds a scale to the type of the file. A positive scale never becomes 0. A scale of 0, as for weights that are all
// zero, becomes 1.
float roundedScale(float scale, DType dtype) {
  if (scale == 0.0f) return 1.0f;
  switch (dtype) {
    case DType::kBFloat16:
      return std::max(toFloat(toBf16(scale)), toFloat(bf16{1}));
    case DType::kFloat16:
      return std::max(toFloat(toF16(scale)), toFloat(f16{1}));
    default:
      return scale;
  }
}
}  // namespace

void quantiseRow(const float* weights, int64_t in, const WeightFormat& format, int8_t* integers, float* scales) {
  assert(isQuantised(format.dtype) && (format.group == 0 || in % format.group == 0));
  const float least = format.dtype == DType::kInt4 ? -8.0f : -128.0f;
  const int64_t group = format.group > 0 ? format.group : in;
  const float divisor = format.group > 0 ? -least - 1 : -least;
  for (int64_t begin = 0; begin < in; begin += group) {
    float largest = 0;
    for (int64_t i = begin; i < begin + group; ++i) largest = std::max(largest, std::abs(weights[i]));
    const float scale = roundedScale(largest / divisor, format.scale_dtype);
    scales[begin / group] = scale;
    for (int64_t i = begin; i < begin + group; ++i) {
      const float steps = std::clamp(weights[i] / scale, least, -least - 1);
      integers[i] = static_cast<int8_t>((steps + kRound) - kRound);
    }
  }
}

}  // namespace chorus
