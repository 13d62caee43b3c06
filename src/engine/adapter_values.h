// Converts an adapter's values to an engine's type.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"

namespace chorus {

// Both functions charge `throttle`, which may be null.
inline std::vector<std::byte> convertedValues(const std::byte* data, DType from, DType to, int64_t count,
                                              BackgroundThrottle* throttle) {
  std::vector<std::byte> out(static_cast<size_t>(count) * dtypeSize(to));
  convertElements(data, from, out.data(), to, static_cast<size_t>(count), throttle);
  return out;
}

// Rounds out.size() values to the type `to` and stores them in `out` as floats.
inline void roundValues(const std::byte* data, DType from, DType to, std::vector<float>& out,
                        BackgroundThrottle* throttle) {
  const std::vector<std::byte> rounded = convertedValues(data, from, to, static_cast<int64_t>(out.size()), throttle);
  convertElements(rounded.data(), to, out.data(), DType::kFloat32, out.size(), throttle);
}

}  // namespace chorus
