// Shared by the kernel tests: seeded values, every backend of this machine, and bitwise comparison.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace chorus::kernel_test {

// The seed of a test's values, printed when the test fails.
inline constexpr uint32_t kSeed = 20240607;

class Values {
 public:
  explicit Values(uint32_t seed = kSeed) : engine_(seed) {}
  float real(float low = -1.0f, float high = 1.0f) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  std::vector<float> reals(int64_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = real(low, high);
    return values;
  }

 private:
  std::mt19937 engine_;
};

inline std::unique_ptr<Backend> cpuBackend(Isa isa, int threads) {
  return createBackend({.name = "cpu", .threads = threads, .isa = isa});
}

inline std::string isaParamName(const testing::TestParamInfo<Isa>& info) {
  return std::string(isaName(info.param));
}

class EveryIsa : public testing::TestWithParam<Isa> {};
#define CHORUS_FOR_EVERY_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(availableIsas()), kernel_test::isaParamName)

inline Matrix view(std::vector<float>& data, int64_t rows, int64_t cols) {
  return {data.data(), rows, cols, cols};
}

// Elements as the dtype holds them: rounded to nearest even.
inline std::vector<std::byte> asDtype(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * dtypeSize(dtype));
  convertElements(values.data(), DType::kFloat32, bytes.data(), dtype, values.size());
  return bytes;
}

// One failure for a whole array: the first element out of its own tolerance.
inline void expectNear(const std::vector<float>& actual, const std::vector<float>& expected,
                       const std::vector<float>& tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= tolerance[i]) continue;
    FAIL() << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i] << " within "
           << tolerance[i] << " (seed " << kSeed << ")";
  }
}

inline void expectSameBits(const float* actual, const float* expected, int64_t count,
                           const std::string& what) {
  if (count == 0 || std::memcmp(actual, expected, static_cast<size_t>(count) * sizeof(float)) == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    if (std::memcmp(actual + i, expected + i, sizeof(float)) == 0) continue;
    FAIL() << what << ": element " << i << " is " << actual[i] << ", expected exactly " << expected[i]
           << " (seed " << kSeed << ")";
  }
}

}  // namespace chorus::kernel_test
