#include "runtime/decoding/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/testing/plain_sampling.h"

namespace chorus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SampleOutput sampleOne(Sampler& sampler, const SampleInput& input) {
  SampleOutput output;
  sampler.sample({&input, 1}, {&output, 1});
  return output;
}

std::vector<float> randomLogits(std::mt19937& random, size_t vocab, float spread, bool ties) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(vocab);
  for (auto& x : logits) x = ties ? std::round(normal(random)) : normal(random);
  return logits;
}

SampleInput scored(const std::vector<float>& logits, const SamplingParams& params, uint64_t position) {
  SampleInput input{logits, &params, position};
  input.want_log_prob = true;
  input.top_log_probs = 3;
  return input;
}

// The prompt's length is the position, and nothing is generated.
int32_t plainSample(const std::vector<float>& logits, const SamplingParams& params, uint64_t position) {
  testing::PlainRequest request;
  request.params = params;
  request.prompt.resize(position);
  return testing::plainToken(logits, request);
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  Sampler sampler(40, 1);
  std::vector<float> logits(40, -1.0f);
  logits[33] = logits[17] = logits[38] = 2.0f;
  SamplingParams params;
  EXPECT_EQ(sampleOne(sampler, {logits, &params}).token, 17);
}

TEST(Sampler, WhatCountsAsGreedy) {
  using executor::SamplingConfig;
  SamplingConfig config;
  EXPECT_TRUE(SamplingParams::from(config).greedy);
  config.setSeed(7);
  EXPECT_TRUE(SamplingParams::from(config).greedy);
  config.setTemperature(0.7f);
  EXPECT_FALSE(SamplingParams::from(config).greedy);
  config.setTopK(1);
  EXPECT_TRUE(SamplingParams::from(config).greedy);
  config.setTopK(0);
  EXPECT_FALSE(SamplingParams::from(config).greedy);
  config.setTemperature(0.0f);
  EXPECT_TRUE(SamplingParams::from(config).greedy);
  SamplingConfig zero_k(1, 0);
  EXPECT_TRUE(SamplingParams::from(zero_k).greedy);
  SamplingConfig nucleus(1, std::nullopt, 0.9f);
  EXPECT_FALSE(SamplingParams::from(nucleus).greedy);
}

TEST(Sampler, TheLowestTemperatureTakesTheLikeliest) {
  Sampler sampler(40, 1);
  std::mt19937 random(2);
  const auto logits = randomLogits(random, 40, 2.0f, false);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  executor::SamplingConfig config;
  for (const float temperature : {1e-6f, 1e-30f, std::numeric_limits<float>::denorm_min()}) {
    config.setTemperature(temperature);
    const SamplingParams params = SamplingParams::from(config);
    EXPECT_FALSE(params.greedy);
    EXPECT_EQ(sampleOne(sampler, {logits, &params}).token, best);
  }
}

TEST(Sampler, RowsThatAreNotNumbersGiveNoToken) {
  Sampler sampler(35, 1);
  for (const bool greedy : {true, false}) {
    SamplingParams params;
    params.greedy = greedy;
    std::vector<float> logits(35, 0.5f);
    logits[34] = std::nanf("");
    EXPECT_EQ(sampleOne(sampler, {logits, &params}).token, -1);
    logits[34] = kInfinity;
    EXPECT_EQ(sampleOne(sampler, {logits, &params}).token, -1);
    EXPECT_EQ(sampleOne(sampler, {std::vector<float>(35, -kInfinity), &params}).token, -1);
    logits[34] = -kInfinity;
    EXPECT_GE(sampleOne(sampler, {logits, &params}).token, 0);
  }
}

// Rules that ban each of these tokens.
LogitRules banning(std::vector<int32_t> tokens) {
  executor::Request request({0}, 1);
  std::list<executor::VecTokens> words;
  for (const int32_t token : tokens) words.push_back({token});
  request.setBadWords(words);
  return {SamplingParams(), request, {}};
}

TEST(Sampler, WhenAllIsBannedNoTokenIsChosen) {
  Sampler sampler(3000, 1);
  std::vector<float> logits(3000, -1.0f);
  logits[3] = 9.0f;
  logits[2500] = 8.0f;
  for (const bool greedy : {true, false}) {
    SamplingParams params;
    params.greedy = greedy;
    params.top_k = 1;
    const LogitRules one = banning({3});
    EXPECT_EQ(sampleOne(sampler, {logits, &params, 0, &one}).token, 2500);
    const LogitRules both = banning({3, 2500});
    EXPECT_EQ(sampleOne(sampler, {logits, &params, 0, &both}).token, 0) << "the lowest id of equals";
    std::vector<int32_t> all(3000);
    std::iota(all.begin(), all.end(), 0);
    const LogitRules every = banning(all);
    const auto output = sampleOne(sampler, {logits, &params, 0, &every});
    EXPECT_EQ(output.token, -1);
    EXPECT_EQ(output.fault, SampleOutput::Fault::kNothingLeft);
    EXPECT_EQ(sampleOne(sampler, {logits, &params}).token, 3) << "nothing of the row before is left";
  }
}

TEST(Sampler, TheLikeliestTokensComeInOrder) {
  Sampler sampler(2000, 1);
  std::mt19937 random(12);
  auto logits = randomLogits(random, 2000, 3.0f, true);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  std::vector<int32_t> order(2000);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  SampleInput input{logits};
  input.given = 77;
  input.want_log_prob = true;
  for (const int32_t count : {0, 1, 20, 2000, 5000}) {
    input.top_log_probs = count;
    const auto output = sampleOne(sampler, input);
    EXPECT_EQ(output.token, 77);
    EXPECT_NEAR(output.log_prob, static_cast<double>(logits[77]) - std::log(sum), 1e-5);
    ASSERT_EQ(output.top.size(), static_cast<size_t>(std::min(count, 2000)));
    for (size_t i = 0; i < output.top.size(); ++i) {
      ASSERT_EQ(output.top[i].token, order[i]);
      ASSERT_NEAR(output.top[i].logProb, static_cast<double>(logits[static_cast<size_t>(order[i])]) - std::log(sum),
                  1e-5);
    }
  }
}

TEST(Sampler, LogProbsAreOfTheRawLogits) {
  Sampler sampler(1000, 1);
  std::mt19937 random(11);
  const auto logits = randomLogits(random, 1000, 3.0f, false);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  SamplingParams params;
  params.greedy = false;
  params.temperature = 2.5f;
  params.top_k = 50;
  for (uint64_t position = 0; position < 20; ++position) {
    const auto output = sampleOne(sampler, scored(logits, params, position));
    const double expected = static_cast<double>(logits[static_cast<size_t>(output.token)]) - std::log(sum);
    EXPECT_NEAR(output.log_prob, expected, 1e-5);
  }
}

TEST(Sampler, EqualsThePlainDefinition) {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const auto vocab = static_cast<size_t>(pick(0, 4) == 0 ? pick(5000, 40000) : pick(2, 300));
    const auto logits = randomLogits(random, vocab, static_cast<float>(pick(1, 40)) / 8, pick(0, 3) == 0);
    SamplingParams params;
    params.greedy = pick(0, 9) == 0;
    params.temperature = static_cast<float>(pick(1, 20)) / 10;
    params.top_k = pick(0, 1) == 0 ? 0 : pick(1, pick(0, 3) == 0 ? static_cast<int>(vocab) : 80);
    params.top_p = pick(0, 1) == 0 ? 1.0f : static_cast<float>(pick(1, 99)) / 100;
    params.min_p = pick(0, 2) == 0 ? static_cast<float>(pick(1, 40)) / 100 : 0.0f;
    params.seed = random();
    Sampler sampler(static_cast<int64_t>(vocab), 1);
    for (uint64_t position = 0; position < (vocab > 1000 ? 3 : 20); ++position) {
      ASSERT_EQ(sampleOne(sampler, {logits, &params, position}).token, plainSample(logits, params, position))
          << "position " << position << " vocab " << vocab << " temperature " << params.temperature << " top_k "
          << params.top_k << " top_p " << params.top_p << " min_p " << params.min_p;
    }
  }
}

// In the plain definition a masked token has a bias of minus infinity.
TEST(Sampler, AMaskLeavesTheAllowedTokens) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
    };
    const auto vocab = static_cast<size_t>(pick(0, 4) == 0 ? pick(5000, 20000) : pick(2, 300));
    const auto logits = randomLogits(random, vocab, 2.0f, pick(0, 3) == 0);
    testing::PlainRequest plain;
    plain.params.greedy = pick(0, 2) == 0;
    plain.params.top_k = pick(0, 1) == 0 ? 0 : pick(1, 80);
    plain.params.top_p = pick(0, 1) == 0 ? 1.0f : static_cast<float>(pick(1, 99)) / 100;
    plain.params.seed = random();
    plain.prompt.resize(3);
    const std::vector<int32_t> banned = {pick(0, 1), pick(0, static_cast<int>(vocab) - 1)};
    for (const int32_t token : banned) plain.bad_words.push_back({token});
    const LogitRules rules = banning(banned);
    // The mask allows one token in `rare` on average; sometimes it has fewer words than the vocabulary needs.
    const int rare = pick(1, 40);
    std::vector<uint64_t> words(static_cast<size_t>(pick(1, static_cast<int>((vocab + 63) / 64))), 0);
    plain.bias.assign(vocab, -kInfinity);
    for (size_t i = 0; i < std::min(vocab, 64 * words.size()); ++i) {
      if (pick(1, rare) > 1) continue;
      words[i / 64] |= uint64_t{1} << (i % 64);
      plain.bias[i] = 0;
    }
    SampleInput input{logits, &plain.params, 3, &rules};
    input.mask = TokenMask(words);
    input.want_log_prob = true;
    Sampler sampler(static_cast<int64_t>(vocab), 1);
    const SampleOutput output = sampleOne(sampler, input);
    ASSERT_EQ(output.token, testing::plainToken(logits, plain));
    if (output.token < 0) {
      ASSERT_EQ(output.fault, SampleOutput::Fault::kNothingLeft);
      continue;
    }
    input.given = output.token;
    input.mask = TokenMask();
    ASSERT_EQ(output.log_prob, sampleOne(sampler, input).log_prob) << "log probabilities are of the raw logits";
  }
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  Sampler sampler(4, 1);
  const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f)};
  SamplingParams params;
  params.greedy = false;
  params.seed = 42;
  std::vector<int> counts(4, 0);
  constexpr int kDraws = 40000;
  for (uint64_t position = 0; position < kDraws; ++position) {
    ++counts[static_cast<size_t>(sampleOne(sampler, {logits, &params, position}).token)];
  }
  for (int i = 0; i < 4; ++i) {
    const double p = 0.1 * (i + 1);
    EXPECT_NEAR(counts[static_cast<size_t>(i)], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)));
  }
}

TEST(Sampler, ARowDoesNotDependOnItsMatesOrThreads) {
  constexpr size_t kVocab = 9000, kRows = 24;
  std::mt19937 random(5);
  std::vector<std::vector<float>> logits;
  std::vector<SamplingParams> params(kRows);
  std::vector<SampleInput> inputs;
  for (size_t i = 0; i < kRows; ++i) {
    logits.push_back(randomLogits(random, kVocab, 2.0f, false));
    params[i].greedy = i % 4 == 0;
    params[i].top_p = 0.9f;
    params[i].seed = i;
  }
  for (size_t i = 0; i < kRows; ++i) inputs.push_back(scored(logits[i], params[i], i));
  Sampler alone(kVocab, 1), together(kVocab, 3);
  std::vector<SampleOutput> outputs(kRows);
  together.sample(inputs, outputs);
  for (size_t i = 0; i < kRows; ++i) {
    const auto solo = sampleOne(alone, inputs[i]);
    EXPECT_EQ(outputs[i].token, solo.token);
    EXPECT_EQ(outputs[i].log_prob, solo.log_prob);
    ASSERT_EQ(outputs[i].top.size(), solo.top.size());
    for (size_t t = 0; t < solo.top.size(); ++t) EXPECT_EQ(outputs[i].top[t].logProb, solo.top[t].logProb);
  }
}

}  // namespace
}  // namespace chorus
