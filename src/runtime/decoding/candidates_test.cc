// The candidates equal those of full sorts, for many kinds of logits.
#include "runtime/decoding/candidates.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

using Logits = std::vector<float>;
using Candidates = std::vector<Candidate>;

enum class Kind { kNormal, kFlat, kTies, kEqual, kMinusInfinity, kTiny, kZeros, kHuge, kRising, kOutlier, kCount };

Logits logitsOf(Kind kind, size_t vocab, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  Logits logits(vocab);
  for (auto& x : logits) {
    const float value = normal(random);
    switch (kind) {
      case Kind::kFlat:
        x = value * 1e-4f;
        break;
      case Kind::kTies:
        x = std::round(value);
        break;
      case Kind::kEqual:
        x = -1.25f;
        break;
      case Kind::kMinusInfinity:
        x = random() % 4 == 0 ? value : -kInfinity;
        break;
      case Kind::kTiny:
        x = value * 1e-41f;
        break;
      case Kind::kZeros:
        x = random() % 3 == 0 ? -1.0f : random() % 2 == 0 ? 0.0f : -0.0f;
        break;
      case Kind::kHuge:
        x = value * 1e37f;
        break;
      default:
        x = value;
    }
  }
  if (kind == Kind::kRising) std::sort(logits.begin(), logits.end());
  if (kind == Kind::kOutlier) logits[random() % vocab] = -1e30f;
  if (kind == Kind::kMinusInfinity) logits[random() % vocab] = 0.5f;  // at least one is finite
  return logits;
}

// Vocabularies from 1 to 200,000, the small ones more often.
size_t randomSize(std::mt19937& random, size_t most) {
  const double exponent = std::uniform_real_distribution<double>(0.0, std::log(static_cast<double>(most)))(random);
  return std::clamp<size_t>(static_cast<size_t>(std::lround(std::exp(exponent))), 1, most);
}

bool before(const Candidate& a, const Candidate& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; }
bool byId(const Candidate& a, const Candidate& b) { return a.id < b.id; }

// The first k logits above minus infinity, in the filters' order.
Candidates sortedTop(const Logits& logits, size_t k) {
  Candidates all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInfinity) all.push_back({logits[i], static_cast<int32_t>(i)});
  }
  std::sort(all.begin(), all.end(), before);
  all.resize(std::min(k, all.size()));
  return all;
}

void expectSame(std::span<const Candidate> got, const Candidates& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(got[i].id, wanted[i].id) << "at " << i;
    ASSERT_EQ(got[i].value, wanted[i].value) << "at " << i;
  }
}

// Takes the weights without a filter from the code itself, because nearly equal logits may round to equal weights.
void expectKept(CandidateFilter& filter, const Logits& logits, const SamplingParams& params) {
  const float most = *std::max_element(logits.begin(), logits.end());
  SamplingParams unfiltered;
  unfiltered.temperature = params.temperature;
  Logits weights(logits.size());
  const auto all = filter.keep(logits, most, unfiltered);
  ASSERT_TRUE(std::is_sorted(all.begin(), all.end(), byId));
  for (const auto& [weight, id] : all) weights[static_cast<size_t>(id)] = weight;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double x = (static_cast<double>(logits[i]) - most) / static_cast<double>(params.temperature);
    ASSERT_NEAR(weights[i], std::exp(x), 1e-6 * std::max(1.0, std::min(87.0, -x)) * std::exp(x) + 2e-38) << i;
  }

  const size_t k = params.top_k > 0 ? static_cast<size_t>(params.top_k) : logits.size();
  Candidates wanted = sortedTop(logits, k);
  for (auto& candidate : wanted) candidate.value = weights[static_cast<size_t>(candidate.id)];
  std::erase_if(wanted, [&](const auto& one) { return one.value <= 0.0f || one.value < params.min_p; });
  const auto got = filter.keep(logits, most, params);
  ASSERT_FALSE(got.empty());
  if (params.top_p < 1.0f) {
    std::sort(wanted.begin(), wanted.end(), before);
    double total = 0, sum = 0;
    for (const auto& candidate : wanted) total += candidate.value;
    ASSERT_LE(got.size(), wanted.size());
    wanted.resize(got.size());
    for (const auto& candidate : wanted) sum += candidate.value;
    // The sums are rounded, so the mass may be reached one token sooner or later.
    const double mass = static_cast<double>(params.top_p) * total;
    EXPECT_GE(sum, mass * (1 - 1e-9));
    if (wanted.size() > 1) {
      EXPECT_LT(sum - wanted.back().value, mass * (1 + 1e-9));
    }
  }
  std::sort(wanted.begin(), wanted.end(), byId);
  expectSame(got, wanted);
  const Candidates first(got.begin(), got.end());
  expectSame(filter.keep(logits, most, params), first);
}

TEST(Candidates, KeepsWhatSortsKeep) {
  std::mt19937 random(20);
  CandidateFilter filter(200000);
  const auto oneOf = [&](std::initializer_list<float> values) { return values.begin()[random() % values.size()]; };
  for (int round = 0; round < 600; ++round) {
    const Kind kind = static_cast<Kind>(round % static_cast<int>(Kind::kCount));
    const size_t vocab = round < 10 ? 200000 : randomSize(random, round % 20 == 0 ? 200000 : 20000);
    const Logits logits = logitsOf(kind, vocab, random);
    SamplingParams params;
    params.temperature = oneOf({0.01f, 0.3f, 1.0f, 1.0f, 2.0f});
    if (random() % 3 != 0) params.top_k = static_cast<int32_t>(randomSize(random, vocab + 3));
    params.top_p = oneOf({1.0f, 1e-6f, 0.1f, 0.5f, 0.9f, 0.999f, 0.9999999f});
    params.min_p = oneOf({0.0f, 0.0f, 0.0f, 1e-4f, 0.05f, 0.5f, 1.0f});
    SCOPED_TRACE(fmt::format("kind {}, vocabulary {}, temperature {}, top-k {}, top-p {}, min-p {}",
                             static_cast<int>(kind), vocab, params.temperature, params.top_k, params.top_p,
                             params.min_p));
    expectKept(filter, logits, params);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(Candidates, LikeliestIsWhatSortsPutFirst) {
  std::mt19937 random(21);
  CandidateFilter filter(200000);
  for (int round = 0; round < 400; ++round) {
    const Kind kind = static_cast<Kind>(round % static_cast<int>(Kind::kCount));
    const size_t vocab = round < 10 ? 200000 : randomSize(random, round % 20 == 0 ? 200000 : 20000);
    const Logits logits = logitsOf(kind, vocab, random);
    const size_t k = randomSize(random, vocab + 3);
    SCOPED_TRACE(fmt::format("kind {}, vocabulary {}, k {}", static_cast<int>(kind), vocab, k));
    expectSame(filter.likeliest(logits, k), sortedTop(logits, k));
    if (HasFatalFailure()) return;
  }
}

TEST(Candidates, TiesAtTheBoundaryGoToTheLowestIds) {
  constexpr size_t kVocab = 5000;
  CandidateFilter filter(kVocab);
  Logits logits(kVocab, 0.0f);
  for (size_t i = 1; i < kVocab; i += 2) logits[i] = -0.0f;
  logits[4321] = 1.0f;
  SamplingParams params;
  const auto idsOf = [&](std::span<const Candidate> kept) {
    std::vector<int32_t> ids;
    for (const auto& candidate : kept) ids.push_back(candidate.id);
    return ids;
  };
  for (const int32_t k : {1, 2, 3, 20, 39, 40, 1000, 4999}) {
    SCOPED_TRACE(k);
    std::vector<int32_t> wanted;
    for (int32_t id = 0; static_cast<int32_t>(wanted.size()) < k - 1; ++id) {
      if (id != 4321) wanted.push_back(id);
    }
    wanted.insert(std::lower_bound(wanted.begin(), wanted.end(), 4321), 4321);
    params.top_k = k;
    params.top_p = 1.0f;
    EXPECT_EQ(idsOf(filter.keep(logits, 1.0f, params)), wanted);
    params.top_k = 0;
    // The mass that ends half way within the last of them.
    const double rest = std::exp(-1.0);
    params.top_p = static_cast<float>((1 + (k - 1.5) * rest) / (1 + (kVocab - 1) * rest));
    EXPECT_EQ(idsOf(filter.keep(logits, 1.0f, params)), wanted);
  }
}

}  // namespace
}  // namespace chorus
