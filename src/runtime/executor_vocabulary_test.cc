// Adapters that add tokens to the vocabulary, in batches with requests that lack these tokens.
#include <gmock/gmock.h>

#include <algorithm>

#include "runtime/testing/core_fixture.h"

namespace chorus {
namespace {

using executor::LoraConfig;
using executor::Request;
using testing::expectedTokens;
using ::testing::HasSubstr;

class ExecutorVocabularyTest : public testing::CoreFixture {
 protected:
  static constexpr int32_t kAdded = 6;

  ExecutorVocabularyTest() {
    options.requests.added_tokens = 8;
    load = [](const AdapterSource& source) {
      auto adapter = std::make_shared<PreparedAdapter>(*testing::fakeParts(source.directory.string()));
      if (source.directory == "grown") adapter->vocab_size = adapter->input_vocab_size = kVocab + kAdded;
      return adapter;
    };
  }
  void startWithAdapters() {
    start();
    core->registerAdapter(1, testing::fakeSource("grown"));
    core->registerAdapter(2, testing::fakeSource("plain"));
  }
  static Request ask(executor::VecTokens prompt, uint64_t task_id, int32_t max_tokens = 30) {
    Request r = request(std::move(prompt), max_tokens);
    if (task_id > 0) r.setLoraConfig(LoraConfig(task_id));
    return r;
  }
};

// The columns behind each narrower row hold logits that would win if they were sampled.
TEST_F(ExecutorVocabularyTest, EachRequestSamplesItsOwnTokens) {
  startWithAdapters();
  executor::SamplingConfig penalised;
  penalised.setRepetitionPenalty(1.3f);
  for (const bool penalty : {false, true}) {
    std::vector<Request> requests = {ask({1, 2}, 1), ask({1, 2}, 0), ask({kVocab + 3, 2}, 1), ask({1, 2}, 2)};
    for (Request& r : requests) {
      if (penalty) r.setSamplingConfig(penalised);
    }
    const auto ids = core->enqueue(requests, nullptr);
    std::vector<executor::VecTokens> answers;
    for (const auto id : ids) answers.push_back(resultOf(id).outputTokenIds.at(0));
    if (!penalty) {
      EXPECT_EQ(answers[0], expectedTokens({1, 2}, 30, kVocab + kAdded, "grown"));
      EXPECT_EQ(answers[1], expectedTokens({1, 2}, 30, kVocab));
      EXPECT_EQ(answers[2], expectedTokens({kVocab + 3, 2}, 30, kVocab + kAdded, "grown"));
      EXPECT_EQ(answers[3], expectedTokens({1, 2}, 30, kVocab, "plain"));
    }
    for (const size_t narrow : {1, 3}) {
      EXPECT_LT(*std::max_element(answers[narrow].begin(), answers[narrow].end()), kVocab);
    }
    EXPECT_GE(std::max(*std::max_element(answers[0].begin(), answers[0].end()),
                       *std::max_element(answers[2].begin(), answers[2].end())),
              kVocab);
  }
}

TEST_F(ExecutorVocabularyTest, LogitsHaveTheWidthOfTheRequestsVocabulary) {
  startWithAdapters();
  executor::OutputConfig output;
  output.returnContextLogits = output.returnGenerationLogits = output.returnLogProbs = true;
  std::vector<Request> requests = {ask({1, 2, 3}, 1, 4), ask({1, 2, 3}, 0, 4)};
  for (Request& r : requests) r.setOutputConfig(output);
  const auto ids = core->enqueue(requests, nullptr);
  for (size_t i = 0; i < 2; ++i) {
    const auto result = resultOf(ids[i]);
    const int64_t vocab = i == 0 ? kVocab + kAdded : kVocab;
    ASSERT_TRUE(result.contextLogits && result.generationLogits);
    EXPECT_EQ(result.contextLogits->getShape(), (executor::Shape{3, vocab}));
    EXPECT_EQ(result.generationLogits->getShape(), (executor::Shape{1, 4, vocab}));
    std::vector<float> row(static_cast<size_t>(vocab));
    const PreparedAdapter grown{.content_hash = "grown"};
    testing::fakeLogits(std::vector<int32_t>{1, 2}, testing::hashAdapter(i == 0 ? &grown : nullptr), row);
    const auto* second = static_cast<const float*>(result.contextLogits->getData()) + vocab;
    EXPECT_TRUE(std::equal(row.begin(), row.end(), second));
  }
}

TEST_F(ExecutorVocabularyTest, TokensOfNoVocabularyAreRefusedByName) {
  startWithAdapters();
  const auto refusal = [&](executor::VecTokens prompt, uint64_t task_id) {
    return errorOf(enqueue(ask(std::move(prompt), task_id, 2)));
  };
  EXPECT_THAT(refusal({1, kVocab}, 0),
              HasSubstr("Token 50 at position 1 of the prompt is not within the vocabulary [0, 50)"));
  EXPECT_THAT(refusal({1, kVocab}, 2),
              HasSubstr("Token 50 at position 1 of the prompt is not within the vocabulary [0, 50)"));
  EXPECT_EQ(refusal({1, kVocab + kAdded - 1}, 1), "");
  EXPECT_THAT(refusal({1, kVocab + kAdded}, 1),
              HasSubstr("Token 56 at position 1 of the prompt is not within the vocabulary [0, 56)"));
  EXPECT_THAT(refusal({-1}, 1), HasSubstr("Token -1 at position 0"));
  Request end = ask({1}, 1, 2);
  end.setEndId(kVocab + kAdded - 1);
  EXPECT_EQ(errorOf(enqueue(end)), "");
  end.setEndId(kVocab + kAdded);
  EXPECT_THAT(errorOf(enqueue(end)), HasSubstr("EndId (56) is not within acceptable range [-1, 56)."));
}

}  // namespace
}  // namespace chorus
