// PEFT adapters in cases that the golden tests do not cover: embedding tables that are sharded over ranks, and adapters
// with more tokens than the model.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "engine/rank_group.h"
#include "formats/safetensors.h"
#include "golden_case.h"
#include "golden_tolerance.h"
#include "safetensors_edit.h"
#include "support/test_paths.h"
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

class GrownVocabulary : public testing::TestWithParam<std::string> {
 protected:
  GrownVocabulary() : expected_(Safetensors::open(grown() / "expected.safetensors")) {}

  static fs::path family() { return test::sourceDir() / "tests/goldens/peft_family"; }
  static fs::path grown() { return family() / "grown" / GetParam(); }

  static RankGroup ranksOf(const Cut& cut) {
    return RankGroup(RankGroup::loadEngines(testEngine(family() / GetParam(), DType::kFloat32, testBuildConfig(), cut)),
                     {.threads = 2}, kTeacherForcedOptions);
  }

  // Compares the logits of the adapter's prompt with the oracle's, over the tokens that the adapter can answer with.
  void expectAnswers(RankGroup& ranks, const Adapter& adapter, const std::string& name) const {
    const TensorView& prompt = *expected_.find(name + ".prompt");
    std::vector<int32_t> tokens(static_cast<size_t>(prompt.elements()));
    std::memcpy(tokens.data(), prompt.bytes.data(), prompt.bytes.size());
    const TensorView& wanted = *expected_.find(name + ".logits");
    const int64_t vocab = adapter.vocab_size > 0 ? adapter.vocab_size : ranks.engine().config().vocab_size;
    ASSERT_LE(vocab, wanted.shape[1]);
    std::vector<float> oracle(static_cast<size_t>(wanted.shape[0] * vocab));
    for (int64_t row = 0; row < wanted.shape[0]; ++row) {
      std::memcpy(oracle.data() + row * vocab, wanted.bytes.data() + row * wanted.shape[1] * 4,
                  static_cast<size_t>(vocab) * 4);
    }
    const auto prepared = ranks.prepareAdapter(adapter);
    EXPECT_EQ(static_cast<int64_t>(prepared->bytes), ranks.preparedBytes(adapter));
    const auto logits = teacherForced(ranks, tokens, 0, prepared.get());
    EXPECT_LE(largestDifference(logits, oracle),
              goldenTolerance(DType::kFloat32, DType::kFloat32, ranks.engine().config(), std::ssize(tokens),
                              largestOf(oracle)));
  }

  Safetensors expected_;
};

TEST_P(GrownVocabulary, AddedTokensAreTakenAndAnswered) {
  int adapters = 0;
  for (const Cut& cut : kCuts) {
    SCOPED_TRACE(cut.name());
    RankGroup ranks = ranksOf(cut);
    for (const auto& directory : fs::directory_iterator(grown())) {
      if (!directory.is_directory()) continue;
      const std::string name = directory.path().filename();
      SCOPED_TRACE(name);
      ++adapters;
      const Adapter adapter = readTestAdapter(directory.path(), ranks.engine());
      EXPECT_GT(adapter.vocab_size, ranks.engine().config().vocab_size);
      EXPECT_EQ(adapter.vocab_size, expected_.find(name + ".logits")->shape[1]);
      expectAnswers(ranks, adapter, name);
    }
  }
  EXPECT_EQ(adapters, 20);
}

// PEFT saves grown tables with an adapter. Without them, its trained token rows still add every token to the inputs,
// and to the outputs only if the model ties its output head to the embedding.
TEST_P(GrownVocabulary, AddedTokensMayHaveOnlyRowsOfTrainedTokens) {
  const TempDir dir;
  const fs::path directory = dir.path() / "rows_alone";
  fs::copy(grown() / "grown_tokens", directory);
  const fs::path file = directory / "adapter_model.safetensors";
  const std::vector<std::string> names = Safetensors::open(file).names();
  for (const std::string& name : names) {
    if (name.ends_with("base_layer.weight") || name.find("lm_head") != std::string::npos) dropTensor(file, name);
  }
  for (const Cut& cut : kCuts) {
    SCOPED_TRACE(cut.name());
    RankGroup ranks = ranksOf(cut);
    const Adapter adapter = readTestAdapter(directory, ranks.engine());
    const int64_t all = expected_.find("grown_tokens.logits")->shape[1];
    EXPECT_TRUE(adapter.weights.empty());
    EXPECT_EQ(adapter.input_vocab_size, all);
    EXPECT_EQ(adapter.vocab_size, ranks.engine().config().tie_word_embeddings ? all : 0);
    expectAnswers(ranks, adapter, "grown_tokens");
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GrownVocabulary, testing::Values("peft_bias", "peft_tied"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace chorus::test
