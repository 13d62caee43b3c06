#include "engine/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace chorus {
namespace {

RopeSpec specWith(const RopeScaling& scaling) { return {.kind = RopeKind::kNeox, .dims = 8, .scaling = scaling}; }

// The angle at a position, computed from the table's cos and sin.
double angleAt(const HostRopeTable& table, int64_t position, int64_t i) {
  const auto at = static_cast<size_t>(position * 4 + i);
  return std::atan2(table.sin[at], table.cos[at]);
}

TEST(RopeTableTest, PlainAndLinearFrequencies) {
  const HostRopeTable plain = makeRopeTable(specWith({}), 4);
  const HostRopeTable linear = makeRopeTable(specWith({.type = RopeScalingType::kLinear, .factor = 4.0}), 4);
  for (int64_t i = 0; i < 4; ++i) {
    const double frequency = std::pow(10000.0, -static_cast<double>(i) / 4);
    EXPECT_FLOAT_EQ(plain.cos[static_cast<size_t>(i)], 1.0f);
    EXPECT_NEAR(angleAt(plain, 3, i), 3 * frequency, 1e-6);
    EXPECT_NEAR(angleAt(linear, 3, i), 3 * frequency / 4, 1e-6);
  }
}

TEST(RopeTableTest, Llama3KeepsShortWavelengthsAndSlowsLongOnes) {
  RopeScaling scaling{.type = RopeScalingType::kLlama3,
                      .factor = 8.0,
                      .low_freq_factor = 1.0,
                      .high_freq_factor = 4.0,
                      .original_max_position_embeddings = 100};
  const HostRopeTable table = makeRopeTable(specWith(scaling), 2);
  // Wavelengths 2 pi * {1, 10, 100, 1000}; bounds at 100 / 4 = 25 and 100 / 1 = 100.
  EXPECT_NEAR(angleAt(table, 1, 0), 1.0, 1e-6);
  const double smooth = (100.0 / (2 * std::numbers::pi * 10) - 1.0) / 3.0;
  EXPECT_NEAR(angleAt(table, 1, 1), (1 - smooth) * 0.1 / 8 + smooth * 0.1, 1e-7);
  EXPECT_NEAR(angleAt(table, 1, 2), 0.01 / 8, 1e-8);
  EXPECT_NEAR(angleAt(table, 1, 3), 0.001 / 8, 1e-9);
}

TEST(RopeTableTest, LayersWithEqualSpecsShareATable) {
  ModelSpec spec;
  spec.layers.resize(5);
  for (size_t i = 0; i < 5; ++i) {
    spec.layers[i].attention.rope = {.kind = RopeKind::kNeox, .dims = 8, .base = i % 3 == 2 ? 1e6 : 1e4};
  }
  spec.layers[4].attention.rope = {};
  const auto specs = ropeSpecs(spec);
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_EQ(specs[1].base, 1e6);
  EXPECT_EQ(ropeTableBytes(specs[0], 10), 2 * 10 * 4 * 4);
  EXPECT_EQ(ropeTableBytes(specs[2], 10), 0);
  EXPECT_TRUE(makeRopeTable(specs[2], 10).cos.empty());
}

}  // namespace
}  // namespace chorus
