#include "checkpoint/source_values.h"

namespace chorus {

int64_t sourceColumns(const SourceTensor& source, const SourceTransform& transform) {
  return transform.transposed && source.shape().size() > 1 ? source.rows() : source.cols();
}

void gatherSource(const SourceTensor& source, const SourceTransform& transform, int64_t row, int64_t rows,
                  int64_t col_begin, int64_t cols, std::byte* out) {
  if (transform.transposed) {
    source.readTransposed({col_begin, row, cols, rows}, out);
  } else {
    source.read({row, col_begin, rows, cols}, out);
  }
}

void changeValues(const SourceTransform& transform, std::span<float> values) {
  if (!transform.changesValues()) return;
  for (float& value : values) value = transform.scale * value + transform.add;
}

}  // namespace chorus
