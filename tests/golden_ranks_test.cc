// Every golden on two tensor-parallel ranks, on pipeline stages, and on both. The logits are the oracle's and those of
// one rank within the tolerance, and bitwise the same for any number of stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "golden_case.h"
#include "golden_tolerance.h"
#include "kernels/default_isa.h"
#include "kernels/linear/linear.h"
#include "teacher_forced.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

// Logits of every row of the golden, from all ranks of the engine together.
std::vector<std::vector<float>> logitsOf(const GoldenCase& golden, const std::filesystem::path& engine_dir,
                                         const std::string& backend, int64_t chunk) {
  RankGroup ranks(RankGroup::loadEngines(engine_dir), {.name = backend, .threads = 1}, kTeacherForcedOptions);
  std::vector<std::shared_ptr<const PreparedAdapter>> adapters;
  for (size_t i = 0; i < golden.adapters.size(); ++i) {
    adapters.push_back(ranks.prepareAdapter(readTestAdapter(golden.adapterDirectory(i), ranks.engine())));
  }
  std::vector<std::vector<float>> logits;
  for (const GoldenRow& row : golden.rows) {
    const PreparedAdapter* adapter = row.adapter ? adapters[*row.adapter].get() : nullptr;
    logits.push_back(teacherForced(ranks, row.fed(), row.first_position, adapter, chunk));
  }
  return logits;
}

class GoldenRanks : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(GoldenRanks, AnswerAsOneDoes) {
  const auto& [name, dtype] = GetParam();
  const GoldenCase golden = loadGolden(name, dtype);
  const ModelConfig model = Engine::load(testEngine(golden.directory, dtype))->config();
  for (const std::string backend : {"cpu", "reference"}) {
    std::map<int32_t, std::vector<std::vector<float>>> one_stage;  // by tp_size
    double worst = 0;
    const DType inputs = linearInputType(backend == "cpu" ? std::optional(defaultIsa()) : std::nullopt, dtype);
    for (const auto& [tp_size, pp_size] :
         std::vector<std::pair<int32_t, int32_t>>{{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 3}}) {
      const Cut cut{.tp_size = tp_size, .pp_size = pp_size};
      SCOPED_TRACE(backend + " " + cut.name());
      if (const std::string refusal = cutRefusal(golden, tp_size); !refusal.empty()) {
        EXPECT_THAT(testEngineRefusal(golden.directory, dtype, testBuildConfig(), cut), testing::EndsWith(refusal));
        continue;
      }
      // Runs with several stages are in chunks of 11: neither chunks nor stages change a bit.
      const auto logits = logitsOf(golden, testEngine(golden.directory, dtype, testBuildConfig(), cut), backend,
                                   pp_size == 1 ? 1 << 20 : 11);
      if (pp_size == 1) one_stage[tp_size] = logits;
      for (size_t i = 0; i < golden.rows.size(); ++i) {
        SCOPED_TRACE("row " + std::to_string(i));
        const GoldenRow& row = golden.rows[i];
        const double tolerance =
            goldenTolerance(dtype, inputs, model, static_cast<int64_t>(row.fed().size()), largestOf(row.logits));
        EXPECT_LE(largestDifference(logits[i], row.logits), tolerance);
        const double from_one = largestDifference(logits[i], one_stage.at(1)[i]);
        EXPECT_LE(from_one, tolerance);
        worst = std::max(worst, from_one / tolerance);
        EXPECT_EQ(logits[i], one_stage.at(tp_size)[i]) << "stages change no bit";
      }
    }
    std::printf("%s %s %s: two ranks differ from one by %.2f of the tolerance\n", name.c_str(),
                std::string(dtypeName(dtype)).c_str(), backend.c_str(), worst);
  }
}

INSTANTIATE_TEST_SUITE_P(Llama, GoldenRanks,
                         testing::Combine(testing::ValuesIn(goldenNames()), testing::ValuesIn(kGoldenDTypes)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::string(dtypeName(std::get<1>(info.param)));
                         });

TEST(GoldenRanksCover, HalfOfTheGoldensAreCut) {
  size_t cut = 0;
  for (const std::string& name : goldenNames()) cut += cutRefusal(loadGolden(name, DType::kFloat32), 2).empty();
  EXPECT_GE(2 * cut, goldenNames().size());
}

}  // namespace
}  // namespace chorus::test
