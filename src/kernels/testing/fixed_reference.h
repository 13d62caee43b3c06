// Products of quantised weights and fixed-point inputs in plain C++, exactly as fixed_point.h defines them, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/linear/fixed_point.h"

namespace chorus::kernel_test {

// A row in fixed point.
struct FixedRow {
  int64_t run;
  int levels;
  std::vector<int> fixed;
  std::vector<float> scale;  // one per run

  // Converts a row for weights of this format.
  FixedRow(const float* x, int64_t in, const WeightFormat& format)
      : run(fixedRun(format)), levels(fixedLevels(fixedDigits(format))) {
    for (int64_t begin = 0; begin < in; begin += run) {
      const int64_t end = std::min(begin + run, in);
      float reach = kFixedLeast;
      bool finite = true;
      for (int64_t i = begin; i < end; ++i) {
        finite = finite && std::isfinite(x[i]);
        reach = std::max(reach, std::abs(x[i]));
      }
      const float inverse = static_cast<float>(levels) / reach;
      for (int64_t i = begin; i < end; ++i) {
        fixed.push_back(finite ? static_cast<int>(std::nearbyint(x[i] * inverse)) : 0);
      }
      scale.push_back(finite ? reach / static_cast<float>(levels) : std::numeric_limits<float>::quiet_NaN());
    }
  }
  float step(int64_t i) const { return scale[static_cast<size_t>(i / run)]; }
  float value(int64_t i) const { return step(i) * static_cast<float>(fixed[static_cast<size_t>(i)]); }

  // Computes one output on top of `before`. integers, scales: those of its output feature, one per input.
  float dot(const int* integers, const float* scales, float before) const {
    const auto in = static_cast<int64_t>(fixed.size());
    float total = before;
    for (int64_t begin = 0; begin < in; begin += run) {
      int64_t sum = 0;
      for (int64_t i = begin; i < std::min(begin + run, in); ++i) {
        sum += int64_t{integers[i]} * fixed[static_cast<size_t>(i)];
      }
      total = std::fma(scales[begin], step(begin) * static_cast<float>(sum), total);
    }
    return total;
  }
};

}  // namespace chorus::kernel_test
