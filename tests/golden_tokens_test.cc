// Every golden through the Executor: each row alone, and all in one batch with other adapters and lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "engine/engine.h"
#include "executor_runs.h"
#include "golden_case.h"
#include "golden_tolerance.h"
#include "kernels/default_isa.h"
#include "kernels/linear/linear.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

class GoldenTokens : public testing::TestWithParam<std::tuple<std::string, DType>> {};

void compareTokens(const std::string& name, DType dtype, Isa isa) {
  SCOPED_TRACE(isaName(isa));
  const GoldenCase golden = loadGolden(name, dtype);
  executor::ExecutorConfig config;
  config.setIsa(std::string(isaName(isa)));
  const std::filesystem::path engine_dir = testEngine(golden.directory, dtype);
  const ModelConfig model = Engine::load(engine_dir)->config();
  const auto requests = goldenRequests(golden);
  const DType inputs = linearInputType(isa, dtype);

  const auto alone = runAlone(*openExecutor(engine_dir, config, adapterDirectories(golden)), requests);
  const auto executor = openExecutor(engine_dir, config, adapterDirectories(golden));
  loadAdapters(*executor, golden.adapters.size());
  const auto mixed = runTogether(*executor, requests);

  size_t decided = 0;
  for (size_t i = 0; i < golden.rows.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const GoldenRow& row = golden.rows[i];
    const auto largest = std::max_element(row.logits.begin(), row.logits.end(),
                                          [](float a, float b) { return std::abs(a) < std::abs(b); });
    const double tolerance =
        goldenTolerance(dtype, inputs, model, static_cast<int64_t>(row.fed().size()), std::abs(*largest));
    const std::vector<float> margins = tokenMargins(row, golden.vocab_size);
    ASSERT_EQ(alone[i].tokens.size(), row.tokens.size());
    for (size_t k = 0; k < row.tokens.size(); ++k) {
      if (dtype == DType::kFloat32 || margins[k] > 2 * tolerance) {
        EXPECT_EQ(alone[i].tokens[k], row.tokens[k]) << "token " << k;
        ++decided;
      }
      if (alone[i].tokens[k] != row.tokens[k]) break;  // the two texts differ from here on
    }
    EXPECT_EQ(mixed[i].tokens, alone[i].tokens);
    EXPECT_EQ(mixed[i].logits_hash, alone[i].logits_hash);
  }
  // The goldens' margins are wide enough for most tokens to be compared in 16 bits as well, and for fewer if products
  // round their inputs too.
  const size_t all = golden.rows.size() * golden.rows[0].tokens.size();
  EXPECT_GE(decided, inputs == DType::kBFloat16 ? all * 3 / 8 : all * 3 / 4);
  std::printf("%s %s %s: %zu of %zu tokens decided\n", name.c_str(), std::string(dtypeName(dtype)).c_str(),
              config.getIsa()->c_str(), decided, all);

  const auto steps = executor->getLatestIterationStats();
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [&](const executor::IterationStats& step) {
    return step.numGenRequests == static_cast<int32_t>(requests.size()) &&
           step.numAdapters == static_cast<int32_t>(golden.adapters.size());
  })) << "the rows never shared a step";
}

// On the default instruction set. If its products round their inputs, also on the best set whose products do not.
TEST_P(GoldenTokens, AloneAndInOneMixedBatch) {
  const auto& [name, dtype] = GetParam();
  compareTokens(name, dtype, defaultIsa());
  const auto& isas = availableIsas();
  const auto exact =
      std::find_if(isas.rbegin(), isas.rend(), [&](Isa isa) { return linearInputType(isa, dtype) == DType::kFloat32; });
  if (linearInputType(defaultIsa(), dtype) != DType::kFloat32) compareTokens(name, dtype, *exact);
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenTokens,
                         testing::Combine(testing::ValuesIn(goldenNames()), testing::ValuesIn(kGoldenDTypes)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::string(dtypeName(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace chorus::test
