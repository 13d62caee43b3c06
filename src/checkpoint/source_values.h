// Applies a SourceTransform to some rows of a source tensor. Conversion applies it to a model's weights, and the reader
// of an adapter to the adapter's whole weights.
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/weight_table.h"
#include "formats/source_tensor.h"

namespace chorus {

// Columns of the source, or of its transpose if the transform asks for that; 1 for 0-d and 1-d tensors.
int64_t sourceColumns(const SourceTensor& source, const SourceTransform& transform);

// Copies columns [col_begin, col_begin + cols) of rows [row, row + rows) of the source, or of its transpose, to out:
// [rows, cols] in the source's dtype. Values are copied as they are. out may be unaligned.
void gatherSource(const SourceTensor& source, const SourceTransform& transform, int64_t row, int64_t rows,
                  int64_t col_begin, int64_t cols, std::byte* out);

// value = transform.scale * value + transform.add, in float32.
void changeValues(const SourceTransform& transform, std::span<float> values);

}  // namespace chorus
