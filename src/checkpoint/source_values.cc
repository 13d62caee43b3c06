#include "checkpoint/source_values.h"

#include <cstring>

namespace chorus {

int64_t sourceColumns(const TensorView& source, const SourceTransform& transform) {
  if (source.shape.size() < 2) return 1;
  return transform.transposed ? source.shape[0] : source.shape[1];
}

void gatherSource(const TensorView& source, const SourceTransform& transform, int64_t row, int64_t rows,
                  int64_t col_begin, int64_t cols, std::byte* out) {
  const size_t size = dtypeSize(source.dtype);
  const std::byte* data = source.bytes.data();
  const auto at = [&](int64_t index) { return data + static_cast<size_t>(index) * size; };
  const int64_t source_cols = source.shape.size() < 2 ? 1 : source.shape[1];
  if (!transform.transposed) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(out + static_cast<size_t>(r * cols) * size, at((row + r) * source_cols + col_begin),
                  static_cast<size_t>(cols) * size);
    }
    return;
  }
  // The outer loop is over rows of the source, whose values are adjacent in memory.
  for (int64_t c = 0; c < cols; ++c) {
    const std::byte* from = at((col_begin + c) * source_cols + row);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(out + static_cast<size_t>(r * cols + c) * size, from + static_cast<size_t>(r) * size, size);
    }
  }
}

void changeValues(const SourceTransform& transform, std::span<float> values) {
  if (!transform.changesValues()) return;
  for (float& value : values) value = transform.scale * value + transform.add;
}

}  // namespace chorus
