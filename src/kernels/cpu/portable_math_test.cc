// Compiled for Highway's static target: on x86-64 that is the one without a multiply-add.
#include "kernels/cpu/portable_math-inl.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>
#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace {

using D = hn::CappedTag<float, 16>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kVectors = 16 / kLanes;

// The bits of x; all NaN are equal.
uint32_t bitsOf(float x) { return std::isnan(x) ? 0x7fc00000 : std::bit_cast<uint32_t>(x); }

void expectOneRounding(const float (&x)[16], const float (&w)[16], const float (&sum)[16]) {
  const D d;
  hn::Vec<D> weights[kVectors], sums[2][kVectors];
  for (int v = 0; v < kVectors; ++v) weights[v] = hn::LoadU(d, w + v * kLanes);
  for (int v = 0; v < kVectors; ++v) sums[0][v] = sums[1][v] = hn::LoadU(d, sum + v * kLanes);
  float tile[2][16], single[16], negative[16];
  for (int v = 0; v < kVectors; ++v) {
    const int i = v * kLanes;
    hn::StoreU(mulAdd(hn::LoadU(d, x + i), weights[v], sums[0][v]), d, single + i);
    hn::StoreU(negMulAdd(hn::LoadU(d, x + i), weights[v], sums[0][v]), d, negative + i);
  }
  mulAddTile(x, 5, weights, sums);
  for (int v = 0; v < kVectors; ++v) {
    for (int r = 0; r < 2; ++r) hn::StoreU(sums[r][v], d, tile[r] + v * kLanes);
  }
  for (int i = 0; i < 16; ++i) {
    SCOPED_TRACE(testing::Message() << std::hexfloat << x[i] << " (or " << x[0] << ", " << x[5] << ") * " << w[i]
                                    << " + " << sum[i]);
    ASSERT_EQ(bitsOf(single[i]), bitsOf(std::fma(x[i], w[i], sum[i])));
    ASSERT_EQ(bitsOf(negative[i]), bitsOf(std::fma(-x[i], w[i], sum[i])));
    ASSERT_EQ(bitsOf(tile[0][i]), bitsOf(std::fma(x[0], w[i], sum[i])));
    ASSERT_EQ(bitsOf(tile[1][i]), bitsOf(std::fma(x[5], w[i], sum[i])));
  }
}

TEST(PortableMath, SpecialNumbersAreMultipliedAndAddedWithOneRounding) {
  constexpr float kMax = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  const float special[16] = {0.0f,      -0.0f,      1.0f, -1.0f, kMax,      -kMax,         kInfinity,        -kInfinity,
                             0x1p-126f, -0x1p-127f, NAN,  3.0f,  0x1p-149f, 0x1.000002p0f, 0x1.fffffep-127f, 0x1p-75f};
  for (const float a : special) {
    for (const float c : special) {
      float x[16], sum[16];
      std::fill(std::begin(x), std::end(x), a);
      std::fill(std::begin(sum), std::end(sum), c);
      expectOneRounding(x, special, sum);
    }
  }
}

TEST(PortableMath, NumbersOfAnyBitsAreMultipliedAndAddedWithOneRounding) {
  std::mt19937_64 random(1);
  const auto any = [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); };
  for (int round = 0; round < 7'000; ++round) {
    float x[16], w[16], sum[16];
    for (int i = 0; i < 16; ++i) x[i] = any(), w[i] = any(), sum[i] = any();
    expectOneRounding(x, w, sum);
    if (HasFatalFailure()) return;
  }
}

// Products are 2^n (1 - k^2), where k is a multiple of 2^-22: half a unit in the last place of the sum, or just less.
// The double loses the difference, so rounding it again would be wrong.
TEST(PortableMath, SumsBesideAHalfwayPointAreRoundedOnce) {
  std::mt19937_64 random(2);
  const auto sign = [&] { return (random() & 1) != 0 ? -1.0f : 1.0f; };
  for (const bool subnormal : {false, true}) {
    for (int round = 0; round < 5'000; ++round) {
      float x[16], w[16], sum[16];
      for (int i = 0; i < 16; ++i) {
        const float k = sign() * static_cast<float>(random() & 3) * 0x1p-22f;
        const int exponent = subnormal ? -75 : static_cast<int>(random() % 40) - 20;
        x[i] = sign() * std::ldexp(1 + k, subnormal ? -75 : -5);
        w[i] = std::ldexp(1 - k, exponent);
        const auto bits = static_cast<float>(random() & 0x3fffff);
        sum[i] = sign() * (subnormal ? std::ldexp(0x1p22f + bits, -149) : std::ldexp(0x1p23f + bits, exponent - 4));
      }
      // The tile multiplies by x[0] and x[5]: their products with w need the same k.
      for (int i = 1; i < 16; ++i) {
        if (round % 2 == 0) x[i] = x[0], w[i] = std::ldexp(w[0], std::ilogb(w[i]) - std::ilogb(w[0]));
      }
      expectOneRounding(x, w, sum);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PortableMath, HalvesAreWidenedExactly) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const std::vector<uint16_t> halves(kLanes, static_cast<uint16_t>(bits));
    const float widened = hn::GetLane(loadHalves(D(), halves.data()));
    ASSERT_EQ(bitsOf(widened), bitsOf(toFloat(std::bit_cast<f16>(static_cast<uint16_t>(bits))))) << bits;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
