#include "engine/adapter_values.h"

#include "base/background_throttle.h"
#include "checkpoint/quantise_row.h"

namespace chorus {

std::vector<std::byte> convertedValues(const std::byte* data, DType from, DType to, int64_t count,
                                       BackgroundThrottle* throttle) {
  std::vector<std::byte> out(static_cast<size_t>(count) * dtypeSize(to));
  convertElements(data, from, out.data(), to, static_cast<size_t>(count), throttle);
  return out;
}

void roundValues(const std::byte* data, DType from, DType to, std::vector<float>& out, BackgroundThrottle* throttle) {
  const std::vector<std::byte> rounded = convertedValues(data, from, to, static_cast<int64_t>(out.size()), throttle);
  convertElements(rounded.data(), to, out.data(), DType::kFloat32, out.size(), throttle);
}

QuantisedTerm quantisedTerm(const std::byte* data, DType from, int64_t rows, int64_t in, BackgroundThrottle* throttle) {
  QuantisedTerm term{std::vector<int8_t>(static_cast<size_t>(rows * in)),
                     std::vector<float>(static_cast<size_t>(rows))};
  std::vector<float> row(static_cast<size_t>(in));
  // Passed as one group of all inputs: quantiseRow divides amax by 127 for groups, and by 128 without, which would
  // clamp the largest positive value.
  const WeightFormat format(DType::kInt8, in, DType::kFloat32);
  for (int64_t r = 0; r < rows; ++r) {
    convertElements(data + static_cast<size_t>(r * in) * dtypeSize(from), from, row.data(), DType::kFloat32,
                    row.size());
    quantiseRow(row.data(), in, format, term.integers.data() + r * in, &term.scales[static_cast<size_t>(r)]);
    chargeThrottle(throttle, row.size() * sizeof(float));
  }
  return term;
}

std::vector<float> termValues(const std::byte* data, DType from, const WeightFormat& format, int64_t rows, int64_t in,
                              BackgroundThrottle* throttle) {
  std::vector<float> values(static_cast<size_t>(rows * in));
  if (!isQuantised(format.dtype)) {
    roundValues(data, from, format.dtype, values, throttle);
    return values;
  }
  const QuantisedTerm term = quantisedTerm(data, from, rows, in, throttle);
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = term.scales[static_cast<size_t>(r)];
    for (int64_t i = r * in; i < (r + 1) * in; ++i) {
      values[static_cast<size_t>(i)] = static_cast<float>(term.integers[static_cast<size_t>(i)]) * scale;
    }
    chargeThrottle(throttle, static_cast<size_t>(in) * sizeof(float));
  }
  return values;
}

}  // namespace chorus
