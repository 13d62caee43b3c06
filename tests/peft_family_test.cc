// PEFT's adapters where a golden's layout does not go: on embedding tables that are cut over ranks, and with more
// tokens than the model has.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/rank_group.h"
#include "formats/safetensors.h"
#include "golden_case.h"
#include "golden_tolerance.h"
#include "teacher_forced.h"
#include "test_engines.h"

namespace chorus::test {
namespace {

namespace fs = std::filesystem;

const Cut kCuts[] = {{},
                     {.tp_size = 2},
                     {.tp_size = 2, .pp_size = 2},
                     {.tp_size = 2, .use_parallel_embedding = true, .embedding_sharding_dim = 0},
                     {.tp_size = 2, .use_parallel_embedding = true, .embedding_sharding_dim = 1}};

class PeftFamily : public testing::TestWithParam<std::string> {};

TEST_P(PeftFamily, AnswersAsPeftOverCutEmbeddings) {
  const GoldenCase golden = loadGolden(GetParam(), DType::kFloat32);
  for (const Cut& cut : kCuts) {
    if (!cut.use_parallel_embedding) continue;
    SCOPED_TRACE(cut.name());
    RankGroup ranks(RankGroup::loadEngines(testEngine(golden.directory, DType::kFloat32, testBuildConfig(), cut)),
                    {.threads = 2}, kTeacherForcedOptions);
    for (size_t i = 0; i < golden.rows.size(); ++i) {
      const GoldenRow& row = golden.rows[i];
      if (!row.adapter) continue;
      SCOPED_TRACE(golden.adapters[*row.adapter]);
      const Adapter adapter = readTestAdapter(golden.adapterDirectory(*row.adapter), ranks.engine());
      const auto prepared = ranks.prepareAdapter(adapter);
      EXPECT_EQ(static_cast<int64_t>(prepared->bytes), ranks.preparedBytes(adapter));
      const auto logits = teacherForced(ranks, row.fed(), row.first_position, prepared.get(), 11);
      EXPECT_LE(largestDifference(logits, row.logits),
                goldenTolerance(DType::kFloat32, DType::kFloat32, ranks.engine().config(), std::ssize(row.fed()),
                                largestOf(row.logits)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, PeftFamily, testing::Values("peft_bias", "peft_tied"),
                         [](const auto& info) { return info.param; });

class GrownVocabulary : public testing::TestWithParam<std::string> {};

TEST_P(GrownVocabulary, AddedTokensAreTakenAndAnswered) {
  const fs::path family = fs::path(CHORUS_SOURCE_DIR) / "tests/goldens/peft_family";
  const fs::path grown = family / "grown" / GetParam();
  const Safetensors expected = Safetensors::open(grown / "expected.safetensors");
  int adapters = 0;
  for (const Cut& cut : kCuts) {
    SCOPED_TRACE(cut.name());
    RankGroup ranks(RankGroup::loadEngines(testEngine(family / GetParam(), DType::kFloat32, testBuildConfig(), cut)),
                    {.threads = 2}, kTeacherForcedOptions);
    const int64_t vocab = ranks.engine().config().vocab_size;
    for (const auto& directory : fs::directory_iterator(grown)) {
      if (!directory.is_directory()) continue;
      const std::string name = directory.path().filename();
      SCOPED_TRACE(name);
      ++adapters;
      const TensorView& prompt = *expected.find(name + ".prompt");
      std::vector<int32_t> tokens(static_cast<size_t>(prompt.elements()));
      std::memcpy(tokens.data(), prompt.bytes.data(), prompt.bytes.size());
      const TensorView& wanted = *expected.find(name + ".logits");
      std::vector<float> oracle(static_cast<size_t>(wanted.elements()));
      std::memcpy(oracle.data(), wanted.bytes.data(), wanted.bytes.size());

      const Adapter adapter = readTestAdapter(directory.path(), ranks.engine());
      EXPECT_GT(adapter.vocab_size, vocab);
      EXPECT_EQ(adapter.vocab_size, wanted.shape[1]);
      const auto prepared = ranks.prepareAdapter(adapter);
      EXPECT_EQ(static_cast<int64_t>(prepared->bytes), ranks.preparedBytes(adapter));
      const auto logits = teacherForced(ranks, tokens, 0, prepared.get());
      EXPECT_LE(largestDifference(logits, oracle),
                goldenTolerance(DType::kFloat32, DType::kFloat32, ranks.engine().config(), std::ssize(tokens),
                                largestOf(oracle)));
    }
  }
  EXPECT_EQ(adapters, 20);
}

INSTANTIATE_TEST_SUITE_P(Goldens, GrownVocabulary, testing::Values("peft_bias", "peft_tied"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace chorus::test
