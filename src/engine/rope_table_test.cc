#include "engine/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace chorus {
namespace {

RopeSpec specWith(const RopeScaling& scaling) { return {.kind = RopeKind::kNeox, .dims = 8, .scaling = scaling}; }

HostRopeTable makeRopeTable(const RopeSpec& spec, int64_t positions) {
  HostRopeTable table;
  RopeTableMaker(spec, positions).make(0, positions, table);
  return table;
}

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

// Frequencies and attention factors that transformers' modeling_rope_utils computes for heads of 16 elements.
void expectTable(const RopeSpec& spec, int64_t positions, const std::vector<double>& frequencies, double factor) {
  const HostRopeTable table = makeRopeTable(spec, positions);
  ASSERT_EQ(table.cos.size(), static_cast<size_t>(positions) * frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double cos = table.cos[frequencies.size() + i], sin = table.sin[frequencies.size() + i];
    EXPECT_NEAR(std::atan2(sin, cos), frequencies[i], 1e-6 * frequencies[i]) << "pair " << i;
    EXPECT_NEAR(std::hypot(sin, cos), factor, 1e-6) << "pair " << i;
  }
}

TEST(RopeTableTest, YarnInterpolatesBetweenKeptAndDividedFrequencies) {
  const auto spec = [](RopeScaling scaling, double base = 10000.0) {
    scaling.type = RopeScalingType::kYarn;
    scaling.factor = 4.0;
    return RopeSpec{.kind = RopeKind::kNeox, .dims = 16, .base = base, .scaling = scaling};
  };
  expectTable(
      spec({.original_max_position_embeddings = 1024, .attention_factor = 1.138629436111989}), 2,
      {1, 0.316227764, 0.0812500045, 0.0197642371, 0.00437500002, 0.000790569466, 0.000250000012, 7.90569466e-05},
      1.138629436111989);
  expectTable(spec({.original_max_position_embeddings = 1024, .beta_fast = 16, .beta_slow = 2, .truncate = false}), 2,
              {1, 0.316227764, 0.1, 0.0187018048, 0.0025, 0.000790569466, 0.00025, 7.90569466e-05}, 1.0);
  // The ramp is a single point.
  expectTable(spec({.original_max_position_embeddings = 1024, .beta_fast = 2, .beta_slow = 2, .truncate = false}), 2,
              {1, 0.316227764, 0.1, 0.0316227786, 0.0025, 0.000790569466, 0.00025, 7.90569466e-05}, 1.0);
  // The ramp would begin before the first pair and end behind the last one.
  expectTable(spec({.original_max_position_embeddings = 8}, 1.5), 2,
              {1, 0.807992816, 0.632521391, 0.472420186, 0.326598614, 0.19403629, 0.18444699, 0.175331593}, 1.0);
}

TEST(RopeTableTest, LongRopeChoosesItsFactorsByTheLengthOfTheEngine) {
  const RopeSpec spec = {
      .kind = RopeKind::kNeox,
      .dims = 16,
      .scaling = {.type = RopeScalingType::kLongRope,
                  .original_max_position_embeddings = 100,
                  .attention_factor = 1.25,
                  .factors = {{1, 1.1f, 1.2f, 1.4f, 1.7f, 2, 2.5f, 3}, {1, 1.5f, 2.5f, 4, 7, 11, 16, 30}}}};
  expectTable(spec, 100,
              {1, 0.287479758, 0.0833333358, 0.022587698, 0.00588235306, 0.00158113893, 0.0004, 0.000105409257}, 1.25);
  expectTable(spec, 101,
              {1, 0.210818499, 0.04, 0.00790569466, 0.00142857141, 0.000287479779, 6.2500003e-05, 1.05409254e-05},
              1.25);
}

TEST(RopeTableTest, PiecesAreRowsOfTheWholeTable) {
  const HostRopeTable whole = makeRopeTable(specWith({}), 10);
  const RopeTableMaker maker(specWith({}), 10);
  EXPECT_EQ(maker.pairs(), 4);
  HostRopeTable piece;
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 7}, {7, 10}}) {
    maker.make(begin, end, piece);
    EXPECT_EQ(piece.cos, std::vector(whole.cos.begin() + 4 * begin, whole.cos.begin() + 4 * end));
    EXPECT_EQ(piece.sin, std::vector(whole.sin.begin() + 4 * begin, whole.sin.begin() + 4 * end));
  }
}

TEST(RopeTableTest, QueriesGrowInStepsOfTheLength) {
  EXPECT_TRUE(makeQueryScales({}, 0, 10).empty());
  const std::vector<float> scales = makeQueryScales({.beta = 0.5, .length = 4}, 0, 10);
  ASSERT_EQ(scales.size(), 10u);
  for (size_t p = 0; p < 10; ++p) {
    const size_t lengths = p / 4;  // whole ones
    EXPECT_FLOAT_EQ(scales[p], static_cast<float>(1 + 0.5 * std::log(1.0 + static_cast<double>(lengths))));
  }
  EXPECT_EQ(makeQueryScales({.beta = 0.5, .length = 4}, 3, 10), std::vector(scales.begin() + 3, scales.end()));
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
