#include "runtime/decoding/logit_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <list>
#include <random>

#include "base/testing/thread_time.h"
#include "runtime/decoding/candidates.h"
#include "runtime/decoding/sampling_state.h"
#include "runtime/testing/plain_sampling.h"

namespace chorus {
namespace {

using executor::SamplingConfig;
using executor::Tensor;
using testing::plainKept;
using testing::PlainRequest;
using testing::plainRow;
using testing::plainToken;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A request: its sampling config and everything else that rules read.
struct Case {
  SamplingConfig config;
  PlainRequest plain;

  SamplingState state() const {
    executor::Request request(plain.prompt, 100, false, config);
    request.setBadWords({plain.bad_words.begin(), plain.bad_words.end()});
    if (!plain.bias.empty()) {
      request.setEmbeddingBias(
          Tensor::copyOf(executor::DataType::kFP32, plain.bias.data(), {static_cast<int64_t>(plain.bias.size())}));
    }
    SamplingState state(request, plain.end_ids);
    state.prepare(plain.prompt);
    for (const int32_t token : plain.generated) state.append(token);
    return state;
  }
};

// The row after its edits.
std::vector<float> editedRow(const std::vector<float>& logits, const Case& one) {
  const SamplingState state = one.state();
  const auto generated = static_cast<int32_t>(one.plain.generated.size());
  LogitEdits edits(logits.size());
  edits.begin(logits);
  if (state.rules().active(generated)) state.rules().apply(generated, edits);
  std::vector<float> row = logits;
  for (const auto& [token, value] : edits.all()) row[static_cast<size_t>(token)] = value;
  return row;
}

Case simple(std::vector<int32_t> prompt, std::vector<int32_t> generated) {
  Case one;
  one.plain.prompt = std::move(prompt);
  one.plain.generated = std::move(generated);
  return one;
}

TEST(LogitRules, WithoutRulesNothingIsLookedAt) {
  const Case one = simple({1, 2}, {3});
  EXPECT_FALSE(one.state().rules().active(1));
}

TEST(LogitRules, RepetitionDividesAboveZeroAndMultipliesBelow) {
  Case one = simple({1}, {2, 2});
  one.config.setRepetitionPenalty(2.0f);
  EXPECT_EQ(editedRow({4, 4, -4, 4}, one), (std::vector<float>{4, 2, -8, 4}));
}

TEST(LogitRules, PresenceOnceFrequencyByCountOverPromptAndAnswer) {
  Case one = simple({1, 1}, {2, 1});
  one.config.setPresencePenalty(0.5f);
  one.config.setFrequencyPenalty(0.25f);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, 2.75f, 3.25f, 4}));
  one.config.setPromptIgnoreLength(2);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, 3.25f, 3.25f, 4}));
  one.config.setPromptIgnoreLength(1);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, 3.0f, 3.25f, 4}));
  one.config.setRepetitionPenalty(2.0f);
  one.config.setPromptIgnoreLength(100);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, 1.25f, 1.25f, 4}))
      << "repetition counts the whole prompt";
}

TEST(LogitRules, PenaltiesAreSubtractedAfterTheTemperature) {
  Case one = simple({1}, {});
  one.config.setTemperature(0.5f);
  one.config.setPresencePenalty(1.0f);
  EXPECT_EQ(editedRow({4, 4}, one), (std::vector<float>{4, 3.5f})) << "8 - 1 once it is divided";
  one.config.setTemperature(0.0f);
  EXPECT_EQ(editedRow({4, 4}, one), (std::vector<float>{4, 3}));
}

TEST(LogitRules, BiasComesFirstAndInfinityBans) {
  Case one = simple({0}, {});
  one.plain.bias = {4, 0, -kInfinity};
  one.config.setRepetitionPenalty(2.0f);
  EXPECT_EQ(editedRow({4, 4, 4}, one), (std::vector<float>{4, 4, -kInfinity}));
}

TEST(LogitRules, EndTokensWaitForMinTokens) {
  Case one = simple({0}, {1, 1});
  one.plain.end_ids = {1, 3};
  one.config.setMinTokens(3);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, -kInfinity, 4, -kInfinity}));
  one.plain.generated = {1, 1, 1};
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, 4, 4, 4}));
}

TEST(LogitRules, NgramsDoNotRepeat) {
  Case one = simple({1, 2, 3}, {0, 1, 2});
  one.config.setNoRepeatNgramSize(3);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{4, 4, 4, -kInfinity}));
  one.config.setNoRepeatNgramSize(1);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), std::vector<float>(4, -kInfinity));
  one.config.setNoRepeatNgramSize(7);
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), std::vector<float>(4, 4.0f));
  one.config.setNoRepeatNgramSize(1 << 30);
  EXPECT_FALSE(one.state().rules().active(0)) << "TensorRT-LLM's default is off";
}

TEST(LogitRules, BadWordsAreNeverCompleted) {
  Case one = simple({1}, {2});
  one.plain.bad_words = {{0}, {1, 2, 3}, {2, 2}, {1, 1}, {9, 9, 1, 2, 1}};
  EXPECT_EQ(editedRow({4, 4, 4, 4}, one), (std::vector<float>{-kInfinity, 4, -kInfinity, -kInfinity}));
}

// The words are as many and as long as the executor accepts, and each token of the long prompt begins one of them.
TEST(LogitRules, AStartReadsNeitherAllWordsNorTheWholePromptForThem) {
  std::list<executor::VecTokens> words(256, executor::VecTokens(1024, 7));
  int32_t different = 0;
  for (auto& word : words) word[1000] = ++different;
  const std::vector<int32_t> prompt(131072, 7);
  executor::Request request(prompt, 1);
  request.setBadWords(words);
  const std::vector<int32_t> no_end_ids;
  const auto begin = threadTime();
  for (int i = 0; i < 64; ++i) {
    SamplingState state(request, no_end_ids);
    state.prepare(prompt);
    EXPECT_TRUE(state.rules().active(0));
  }
  EXPECT_LT(threadTime() - begin, std::chrono::seconds(1));
}

TEST(LogitRules, HugePenaltiesLeaveNumbers) {
  Case one = simple({0, 1, 2}, {2});
  one.plain.bias = {0, 3e38f, 0, 0};
  one.config.setRepetitionPenalty(1e-30f);
  one.config.setPresencePenalty(-3e38f);
  one.config.setFrequencyPenalty(-3e38f);
  for (const float x : editedRow({3e38f, 3e38f, -kInfinity, 0}, one)) EXPECT_FALSE(std::isnan(x) || x == kInfinity);
  EXPECT_EQ(editedRow({1, 1, -kInfinity, 0}, one)[2], -kInfinity);
}

// The kept tokens, their weights and the chosen token equal those of the plain definition, whatever the row, the
// history and the parameters are.
TEST(LogitRules, EqualThePlainDefinition) {
  for (unsigned seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const auto tenths = [&](int low, int high) { return static_cast<float>(pick(low, high)) / 10; };
    const int vocab = pick(0, 4) == 0 ? pick(1025, 4000) : pick(2, 60);
    // Few different tokens, so that counts grow and n-grams repeat.
    const int used = pick(1, std::min(vocab, 12));
    const auto tokens = [&](int count) {
      std::vector<int32_t> out;
      for (int i = 0; i < count; ++i) out.push_back(pick(0, used - 1));
      return out;
    };
    Case one = simple(tokens(pick(1, 40)), tokens(pick(0, 30)));
    auto& config = one.config;
    if (pick(0, 2) == 0) config.setTemperature(pick(0, 5) == 0 ? 0.0f : tenths(1, 20));
    if (pick(0, 2) == 0) config.setTopK(pick(0, 20));
    if (pick(0, 1) == 0) config.setTopP(static_cast<float>(pick(1, 100)) / 100);
    if (pick(0, 3) == 0) config.setTopPDecay(tenths(5, 10));
    if (pick(0, 3) == 0) config.setTopPMin(tenths(0, 9));
    if (pick(0, 3) == 0) config.setTopPResetIds(pick(0, used - 1));
    if (pick(0, 4) == 0) config.setMinP(tenths(0, 5));
    if (pick(0, 1) == 0) config.setRepetitionPenalty(tenths(5, 20));
    if (pick(0, 1) == 0) config.setPresencePenalty(tenths(-20, 20));
    if (pick(0, 1) == 0) config.setFrequencyPenalty(tenths(-20, 20));
    if (pick(0, 1) == 0) config.setPromptIgnoreLength(pick(0, 50));
    if (pick(0, 3) == 0) config.setMinTokens(pick(0, 40));
    if (pick(0, 3) == 0) config.setNoRepeatNgramSize(pick(0, 5));
    config.setSeed(random());
    if (pick(0, 1) == 0) one.plain.end_ids = tokens(pick(1, 3));
    for (int words = pick(0, 1) * pick(0, 5); words > 0; --words) {
      one.plain.bad_words.push_back(tokens(pick(1, 4)));
    }
    std::normal_distribution<float> normal(0.0f, tenths(5, 40));
    if (pick(0, 2) == 0) {
      one.plain.bias.resize(static_cast<size_t>(vocab));
      const int stride = pick(1, vocab);
      for (int i = 0; i < vocab; i += stride) one.plain.bias[static_cast<size_t>(i)] = normal(random);
    }
    std::vector<float> logits(static_cast<size_t>(vocab));
    for (auto& x : logits) x = normal(random);
    one.plain.params = SamplingParams::from(config);

    const auto kept = plainKept(plainRow(logits, one.plain), one.plain);
    const SamplingState state = one.state();
    const auto row = editedRow(logits, one);
    const float most = *std::max_element(row.begin(), row.end());
    ASSERT_EQ(kept.empty(), most == -kInfinity);
    if (!kept.empty()) {
      CandidateFilter filter(row.size());
      const auto fast = filter.keep(row, most, state.params());
      ASSERT_EQ(fast.size(), kept.size());
      for (size_t i = 0; i < kept.size(); ++i) {
        ASSERT_EQ(fast[i].id, kept[i].id);
        ASSERT_NEAR(static_cast<double>(fast[i].value), kept[i].weight, 1e-4 * kept[i].weight);
      }
    }
    Sampler sampler(vocab, 1);
    const auto all = one.plain.tokens();
    SampleInput input;
    input.logits = logits;
    input.params = &state.params();
    input.rules = &state.rules();
    input.num_generated = static_cast<int32_t>(one.plain.generated.size());
    input.position = all.size();
    SampleOutput output;
    sampler.sample({&input, 1}, {&output, 1});
    ASSERT_EQ(output.token, plainToken(logits, one.plain));
    ASSERT_EQ(output.fault == SampleOutput::Fault::kNothingLeft, kept.empty());
  }
}

TEST(TokenCounts, CountsWhateverIsAdded) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const size_t different = 1 + random() % 300;
    TokenCounts counts;
    std::map<int32_t, int32_t> plain;
    for (int i = 0; i < 2000; ++i) {
      // Multiples of a power of two would collide under a poor hash.
      const auto token = static_cast<int32_t>(random() % different) * 4096;
      const auto count = static_cast<int32_t>(random() % 2);
      counts.add(token, count);
      plain[token] += count;
    }
    ASSERT_EQ(counts.all().size(), plain.size());
    for (const auto& [token, count] : counts.all()) ASSERT_EQ(count, plain.at(token));
  }
}

}  // namespace
}  // namespace chorus
