// Shared by the kernel tests: seeded values, every variant of this machine, and bitwise comparison.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/registry.h"

namespace chorus::kernel_test {

// The seed of a test's values, printed when the test fails.
inline constexpr uint32_t kSeed = 20240607;

class Values {
 public:
  explicit Values(uint32_t seed = kSeed) : engine_(seed) {}
  // From `low` up to `high`. The standard library's distribution takes a logarithm for each number, and the tests spent
  // a fifth of their time in it.
  float real(float low = -1.0f, float high = 1.0f) {
    return low + (high - low) * (static_cast<float>(engine_() >> 8) * 0x1p-24f);
  }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  std::vector<float> reals(int64_t count, float low = -1.0f, float high = 1.0f) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = real(low, high);
    return values;
  }

 private:
  std::mt19937 engine_;
};

inline std::unique_ptr<Backend> backendOf(const Variant& variant, int threads) {
  if (!variant.isa) return createBackend({.name = "reference"});
  return createBackend({.name = "cpu", .threads = threads, .isa = variant.isa});
}

// "avx2", or "avx2_bfloat16" for a variant that reads one weight format.
inline std::string testName(const Variant& variant) {
  std::string name(variantName(variant));
  return variant.dtype ? name + "_" + std::string(dtypeName(*variant.dtype)) : name;
}

inline std::vector<Variant> availableVariants(Op op) {
  std::vector<Variant> variants;
  for (const Variant& variant : variantsOf(op)) {
    if (isAvailable(variant)) variants.push_back(variant);
  }
  return variants;
}

// Base class of the tests of one op, which run for each of its variants. A test fails if the variant did not run in it.
class EveryVariant : public testing::TestWithParam<Variant> {
 protected:
  // Creates a backend that runs the variant under test. The backend lives as long as the test.
  Backend& newBackend(int threads) {
    backends_.push_back(backendOf(GetParam(), threads));
    return *backends_.back();
  }
  void TearDown() override {
    for (const auto& backend : backends_) EXPECT_TRUE(backend->used().has(GetParam())) << variantText(GetParam());
    EXPECT_FALSE(backends_.empty()) << "nothing ran on " << variantText(GetParam());
  }
  // Types to test: the variant's own, or all if it has none.
  std::vector<DType> dtypes() const {
    if (GetParam().dtype) return {*GetParam().dtype};
    return {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};
// registry_test.cc looks for the instances by these names.
#define CHORUS_FOR_EVERY_VARIANT(Name, suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(Name, suite, testing::ValuesIn(kernel_test::availableVariants(Op::k##Name)), \
                           [](const auto& info) { return kernel_test::testName(info.param); })

// A context of the backend, prepared for the step.
inline std::unique_ptr<StepContext> prepared(Backend& backend, const StepBatch& batch) {
  auto context = backend.createContext();
  backend.prepare(batch, *context);
  return context;
}

// The handle of all groups of one kind in a step.
template <typename Groups>
auto allOf(const Groups& groups) {
  return GroupList<std::remove_cvref_t<decltype(groups[0])>>{0, static_cast<int32_t>(std::size(groups))};
}

inline Matrix view(std::vector<float>& data, int64_t rows, int64_t cols) { return {data.data(), rows, cols, cols}; }

// Converts the values to the dtype, rounded to nearest even.
inline std::vector<std::byte> asDtype(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * dtypeSize(dtype));
  convertElements(values.data(), DType::kFloat32, bytes.data(), dtype, values.size());
  return bytes;
}

// Reports one failure for the whole array: the first element that is not within its own tolerance.
inline void expectNear(const std::vector<float>& actual, const std::vector<float>& expected,
                       const std::vector<float>& tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= tolerance[i]) continue;
    FAIL() << what << ": element " << i << " is " << actual[i] << ", expected " << expected[i] << " within "
           << tolerance[i] << " (seed " << kSeed << ")";
  }
}

inline void expectSameBits(const float* actual, const float* expected, int64_t count, const std::string& what) {
  if (count == 0 || std::memcmp(actual, expected, static_cast<size_t>(count) * sizeof(float)) == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    if (std::memcmp(actual + i, expected + i, sizeof(float)) == 0) continue;
    FAIL() << what << ": element " << i << " is " << actual[i] << ", expected exactly " << expected[i] << " (seed "
           << kSeed << ")";
  }
}

}  // namespace chorus::kernel_test
