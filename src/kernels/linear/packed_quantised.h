// packRows and unpackRow (linear.h) for int8 and int4.
#pragma once

#include "kernels/linear/panel_layout.h"

namespace chorus {

void packQuantisedRows(const void* rows, const WeightFormat& format, int64_t num_rows, int64_t in, int64_t row_begin,
                       void* dst);
void unpackQuantisedRow(const PackedWeight& weight, int64_t row, float* out);

}  // namespace chorus
