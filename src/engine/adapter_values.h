// Converts an adapter's values to the types in which an engine keeps them.
//
// A and B of LoRA terms have the model's type, or int8: for each output feature (a row of A or of B) a float32 scale,
// amax / 127, and integers, value / scale rounded to nearest even. Integers with float32 scales are multiplied by
// float32 inputs, so nothing but A and B is rounded. All other values of an adapter have the model's type or float32.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "kernels/tensor.h"

namespace chorus {

class BackgroundThrottle;

// The format of A and B with integers of 8 bits.
inline WeightFormat int8LoraFormat() { return {DType::kInt8, 0, DType::kFloat32}; }

// All functions charge `throttle`, which may be null.
std::vector<std::byte> convertedValues(const std::byte* data, DType from, DType to, int64_t count,
                                       BackgroundThrottle* throttle);

// Rounds out.size() values to the type `to` and stores them in `out` as floats.
void roundValues(const std::byte* data, DType from, DType to, std::vector<float>& out, BackgroundThrottle* throttle);

// Rows of A or B, whose values are finite, as integers [rows, in] and scales [rows], in int8LoraFormat().
struct QuantisedTerm {
  std::vector<int8_t> integers;
  std::vector<float> scales;
};
QuantisedTerm quantisedTerm(const std::byte* data, DType from, int64_t rows, int64_t in, BackgroundThrottle* throttle);

// A or B, [rows, in], as the products take it: rounded to the format, as floats.
std::vector<float> termValues(const std::byte* data, DType from, const WeightFormat& format, int64_t rows, int64_t in,
                              BackgroundThrottle* throttle);

}  // namespace chorus
