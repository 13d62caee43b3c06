// Quantises one row of a weight by rounding to nearest.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace chorus {

// Quantises one row of `in` finite weights. amax is the largest magnitude in a group of inputs (format.group; 0: the
// whole row).
//   scale   = amax / 2^(bits - 1) without groups, as in TensorRT-LLM's W8A16 and W4A16;
//             amax / (2^(bits - 1) - 1) with groups, as in ModelOpt;
//             rounded to format.scale_dtype; 1 if all weights are zero
//   integer = weight / scale, rounded to nearest even and clamped to [-2^(bits - 1), 2^(bits - 1) - 1]
// integers: [in]; scales: [in / group], or one.
void quantiseRow(const float* weights, int64_t in, const WeightFormat& format, int8_t* integers, float* scales);

}  // namespace chorus
