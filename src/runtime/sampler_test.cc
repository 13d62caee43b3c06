#include "runtime/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

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

// The definition, in doubles and with a full sort.
int32_t plainSample(const std::vector<float>& logits, const SamplingParams& params, uint64_t position,
                    const std::vector<int32_t>& banned) {
  std::vector<double> x(logits.begin(), logits.end());
  for (const int32_t token : banned) x[static_cast<size_t>(token)] = -std::numeric_limits<double>::infinity();
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
  });
  if (params.greedy) return order[0];
  const double most = x[static_cast<size_t>(order[0])];
  std::vector<double> weights;
  for (const int32_t id : order) {
    const double weight =
        std::exp((x[static_cast<size_t>(id)] - most) / static_cast<double>(params.temperature));
    if (weight < std::exp(-87.0) || weight < static_cast<double>(params.min_p)) break;
    if (params.top_k > 0 && weights.size() == static_cast<size_t>(params.top_k)) break;
    weights.push_back(weight);
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || sum < static_cast<double>(params.top_p) * total))
    sum += weights[kept++];
  std::vector<std::pair<int32_t, double>> nucleus;
  for (size_t i = 0; i < kept; ++i) nucleus.emplace_back(order[i], weights[i]);
  std::sort(nucleus.begin(), nucleus.end());
  const double target = uniformAt(params.seed, position) * sum;
  double reached = 0;
  for (const auto& [id, weight] : nucleus) {
    reached += weight;
    if (reached > target) return id;
  }
  return nucleus.back().first;
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

TEST(Sampler, BannedTokensAreNeverChosen) {
  Sampler sampler(20, 1);
  std::vector<float> logits(20, 0.0f);
  logits[3] = 9.0f;
  logits[5] = 8.0f;
  const std::vector<int32_t> banned = {3};
  SamplingParams params;
  EXPECT_EQ(sampleOne(sampler, {logits, &params, 0, banned}).token, 5);
  std::vector<int32_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sampleOne(sampler, {logits, &params, 0, all}).token, -1);
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
    const auto output = sampleOne(sampler, {logits, &params, position, {}, true});
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
    params.top_k = pick(0, 1) == 0 ? 0 : pick(1, 80);
    params.top_p = pick(0, 1) == 0 ? 1.0f : static_cast<float>(pick(1, 99)) / 100;
    params.min_p = pick(0, 2) == 0 ? static_cast<float>(pick(1, 40)) / 100 : 0.0f;
    params.seed = random();
    std::vector<int32_t> banned;
    if (pick(0, 3) == 0) banned.push_back(pick(0, static_cast<int>(vocab) - 1));
    Sampler sampler(static_cast<int64_t>(vocab), 1);
    for (uint64_t position = 0; position < (vocab > 1000 ? 3 : 20); ++position) {
      ASSERT_EQ(sampleOne(sampler, {logits, &params, position, banned}).token,
                plainSample(logits, params, position, banned))
          << "position " << position << " vocab " << vocab << " temperature " << params.temperature
          << " top_k " << params.top_k << " top_p " << params.top_p << " min_p " << params.min_p;
    }
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
  for (size_t i = 0; i < kRows; ++i) inputs.push_back({logits[i], &params[i], i, {}, true});
  Sampler alone(kVocab, 1), together(kVocab, 3);
  std::vector<SampleOutput> outputs(kRows);
  together.sample(inputs, outputs);
  for (size_t i = 0; i < kRows; ++i) {
    const auto solo = sampleOne(alone, inputs[i]);
    EXPECT_EQ(outputs[i].token, solo.token);
    EXPECT_EQ(outputs[i].log_prob, solo.log_prob);
  }
}

}  // namespace
}  // namespace chorus
