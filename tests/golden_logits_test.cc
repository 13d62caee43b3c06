// Teacher-forced logits of every golden through the ranks of an engine, on each instruction set and on the reference backend.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>

#include "base/cpu_features.h"
#include "engine/rank_group.h"
#include "golden_case.h"
#include "golden_tolerance.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

constexpr int32_t kTokensPerBlock = 16;
constexpr int32_t kBlocks = 16;

// Feeds the row in steps of at most `chunk` tokens and returns the logits from first_position on.
std::vector<float> teacherForced(RankGroup& ranks, const GoldenRow& row, const PreparedAdapter* adapter, int64_t chunk) {
  const std::vector<int32_t> tokens = row.fed();
  std::vector<int32_t> blocks(kBlocks);
  std::iota(blocks.rbegin(), blocks.rend(), 0);  // not in memory order
  std::vector<float> logits;
  for (int64_t begin = 0; begin < static_cast<int64_t>(tokens.size()); begin += chunk) {
    const int64_t end = std::min<int64_t>(begin + chunk, static_cast<int64_t>(tokens.size()));
    const int32_t count = static_cast<int32_t>(end - begin);
    StepInput step;
    step.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    step.sequences.push_back({.row_begin = 0, .num_rows = count, .first_position = static_cast<int32_t>(begin),
                              .block_table = blocks});
    for (int64_t position = std::max(begin, row.first_position); position < end; ++position) {
      step.logits_rows.push_back(static_cast<int32_t>(position - begin));
    }
    if (adapter != nullptr) step.adapters.push_back({.adapter = adapter, .ranges = {{0, count}}});
    const auto result = ranks.run(step);
    logits.insert(logits.end(), result.begin(), result.end());
  }
  return logits;
}

struct Where {
  std::string backend;
  std::optional<Isa> isa;
  std::string name() const { return isa ? backend + " " + std::string(isaName(*isa)) : backend; }
};

std::vector<Where> everywhere() {
  std::vector<Where> all = {{"reference", std::nullopt}};
  for (const Isa isa : availableIsas()) all.push_back({"cpu", isa});
  return all;
}

class GoldenLogits : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(GoldenLogits, AreTheOracles) {
  const auto& [name, dtype] = GetParam();
  const GoldenCase golden = loadGolden(name, dtype);
  const auto engines = RankGroup::loadEngines(testEngine(golden.directory, dtype));
  const Engine& engine = *engines.front();
  for (const Where& where : everywhere()) {
    SCOPED_TRACE(where.name());
    RankGroup ranks(engines, {.name = where.backend, .threads = 2, .isa = where.isa},
                    {.max_batch_size = 256, .tokens_per_block = kTokensPerBlock, .kv_blocks = kBlocks});
    std::vector<std::shared_ptr<const PreparedAdapter>> adapters;
    for (size_t i = 0; i < golden.adapters.size(); ++i) {
      adapters.push_back(ranks.prepareAdapter(readTestAdapter(golden.adapterDirectory(i), engine)));
    }
    double worst = 0;
    for (size_t i = 0; i < golden.rows.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      const GoldenRow& row = golden.rows[i];
      const PreparedAdapter* adapter = row.adapter ? adapters[*row.adapter].get() : nullptr;
      const std::vector<float> logits = teacherForced(ranks, row, adapter, 1 << 20);
      ASSERT_EQ(logits.size(), row.logits.size());
      double largest = 0, error = 0;
      for (size_t k = 0; k < logits.size(); ++k) {
        ASSERT_TRUE(std::isfinite(logits[k])) << "logit " << k;
        largest = std::max<double>(largest, std::abs(row.logits[k]));
        error = std::max<double>(error, std::abs(double{logits[k]} - row.logits[k]));
      }
      const double tolerance =
          goldenTolerance(dtype, engine.config(), static_cast<int64_t>(row.fed().size()), largest);
      EXPECT_LE(error, tolerance);
      worst = std::max(worst, error / tolerance);
      EXPECT_EQ(teacherForced(ranks, row, adapter, 7), logits) << "in chunks of 7";
    }
    std::printf("%s %s %s: largest error %.2f of the tolerance\n", name.c_str(), std::string(dtypeName(dtype)).c_str(),
                where.name().c_str(), worst);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenLogits,
                         testing::Combine(testing::ValuesIn(goldenNames()), testing::ValuesIn(kGoldenDTypes)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::string(dtypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace chorus::test
