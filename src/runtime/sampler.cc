#include "runtime/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

namespace chorus {
namespace {

constexpr size_t kLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// exp(x) for x <= 0, to about one part in 10^7, 0 below -87. Written out so that loops over it use vectors
// and give the same bits on every instruction set.
inline float expNonPositive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = clamped * 1.44269504f + kRoundingShift;
  const float n = shifted - kRoundingShift;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRoundingShift);
  const float scaled = p * std::bit_cast<float>((exponent + 127) << 23);
  return x < -87.0f ? 0.0f : scaled;
}

// The largest logit; NaN when the row holds one.
float maximum(std::span<const float> x) {
  std::array<float, kLanes> most;
  std::array<int32_t, kLanes> nan{};
  most.fill(-kInfinity);
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float v = x[i + lane];
      most[lane] = v > most[lane] ? v : most[lane];
      nan[lane] |= v != v;
    }
  }
  for (; i < x.size(); ++i) {
    most[0] = x[i] > most[0] ? x[i] : most[0];
    nan[0] |= x[i] != x[i];
  }
  if (std::any_of(nan.begin(), nan.end(), [](int32_t bad) { return bad != 0; })) return std::nanf("");
  return *std::max_element(most.begin(), most.end());
}

// Weights exp((x - most) * scale) and their sum, added in a fixed order.
double softmaxWeights(std::span<const float> x, float most, float scale, float* weights) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      weights[i + lane] = expNonPositive((x[i + lane] - most) * scale);
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
  }
  for (; i < x.size(); ++i) {
    weights[i] = expNonPositive((x[i] - most) * scale);
    sums[0] += weights[i];
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

struct Candidate {
  float value = 0;  // a logit, or its weight
  int32_t id = 0;
};
// The order of all filters.
bool before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}
bool byId(const Candidate& a, const Candidate& b) { return a.id < b.id; }

// The k first by (logit, id), in order of id. Keeps at most 2k candidates at a time; nothing is sorted by
// value.
void selectTopK(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  out.clear();
  float threshold = -kInfinity;
  const auto shrink = [&] {
    const auto last = out.begin() + static_cast<ptrdiff_t>(k) - 1;
    std::nth_element(out.begin(), last, out.end(), before);
    threshold = last->value;
    out.resize(k);
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    // An equal logit with a higher id is behind k others already.
    if (logits[i] <= threshold) continue;
    out.push_back({logits[i], static_cast<int32_t>(i)});
    if (out.size() == 2 * k) shrink();
  }
  if (out.size() > k) shrink();
  std::sort(out.begin(), out.end(), byId);
}

// The last candidate that top-p keeps. Halves the search by mass, so most candidates are never sorted.
Candidate lastOfNucleus(std::vector<Candidate>& candidates, double mass) {
  size_t begin = 0, end = candidates.size();
  double ahead = 0;
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<ptrdiff_t>(i); };
  while (end - begin > 64) {
    const size_t middle = begin + (end - begin) / 4;
    std::nth_element(at(begin), at(middle), at(end), before);
    double part = 0;
    for (size_t i = begin; i < middle; ++i) part += candidates[i].value;
    if (ahead + part >= mass) {
      end = middle;
    } else {
      ahead += part;
      begin = middle;
    }
  }
  std::sort(at(begin), at(end), before);
  for (size_t i = begin; i < end; ++i) {
    ahead += candidates[i].value;
    if (ahead >= mass) return candidates[i];
  }
  return candidates[end - 1];
}

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

SamplingParams SamplingParams::from(const executor::SamplingConfig& config) {
  SamplingParams params;
  params.temperature = config.getTemperature().value_or(1.0f);
  params.top_k = config.getTopK().value_or(0);
  params.top_p = config.getTopP().value_or(1.0f);
  params.min_p = config.getMinP().value_or(0.0f);
  params.seed = config.getSeed().value_or(0);
  const bool asked = config.getTemperature() || params.top_k > 0 || config.getTopP() || config.getMinP();
  params.greedy = !asked || params.top_k == 1 || params.temperature == 0.0f;
  return params;
}

double uniformAt(uint64_t seed, uint64_t position) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t bits = mix(mix(seed + kGolden) + (position + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

struct Sampler::Scratch {
  std::vector<float> masked;  // logits with banned tokens at minus infinity
  std::vector<float> weights;
  std::vector<Candidate> candidates;
  std::vector<Candidate> nucleus;

  explicit Scratch(size_t vocab) : masked(vocab), weights(vocab) {}

  SampleOutput sample(const SampleInput& input) {
    std::span<const float> logits = input.logits;
    const float raw_most = maximum(logits);
    if (!std::isfinite(raw_most)) return {};
    float most = raw_most;
    if (!input.banned.empty()) {
      std::copy(logits.begin(), logits.end(), masked.begin());
      for (const int32_t token : input.banned) masked[static_cast<size_t>(token)] = -kInfinity;
      logits = masked;
      most = maximum(logits);
      if (!std::isfinite(most)) return {};
    }
    SampleOutput output;
    if (input.params->greedy) {
      output.token = static_cast<int32_t>(std::find(logits.begin(), logits.end(), most) - logits.begin());
    } else {
      gather(logits, most, *input.params);
      output.token = draw(*input.params, uniformAt(input.params->seed, input.position));
    }
    if (input.want_log_prob) {
      const double sum = softmaxWeights(input.logits, raw_most, 1.0f, weights.data());
      const float logit = input.logits[static_cast<size_t>(output.token)];
      output.log_prob = static_cast<float>(static_cast<double>(logit) - raw_most - std::log(sum));
    }
    return output;
  }

  // candidates: what temperature, min-p and top-k leave, as weights relative to the largest, in order of id.
  void gather(std::span<const float> logits, float most, const SamplingParams& params) {
    const float scale = 1.0f / params.temperature;
    const auto keeps = [&](float weight) { return weight > 0.0f && weight >= params.min_p; };
    const auto k = static_cast<size_t>(params.top_k);
    if (k > 0 && k < logits.size()) {
      selectTopK(logits, k, candidates);
      for (auto& candidate : candidates) candidate.value = expNonPositive((candidate.value - most) * scale);
      std::erase_if(candidates, [&](const Candidate& candidate) { return !keeps(candidate.value); });
      return;
    }
    softmaxWeights(logits, most, scale, weights.data());
    candidates.clear();
    for (size_t i = 0; i < logits.size(); ++i) {
      if (keeps(weights[i])) candidates.push_back({weights[i], static_cast<int32_t>(i)});
    }
  }

  int32_t draw(const SamplingParams& params, double uniform) {
    double total = 0;
    for (const auto& candidate : candidates) total += candidate.value;
    Candidate last{0.0f, std::numeric_limits<int32_t>::max()};
    if (params.top_p < 1.0f) {
      // All tokens lighter than this together weigh less than what top-p drops.
      const double floor = (1.0 - params.top_p) * total / static_cast<double>(candidates.size()) * 0.999999;
      nucleus.clear();
      for (const auto& candidate : candidates) {
        if (candidate.value >= floor) nucleus.push_back(candidate);
      }
      last = lastOfNucleus(nucleus, params.top_p * total);
      total = 0;
      for (const auto& candidate : candidates) {
        if (!before(last, candidate)) total += candidate.value;
      }
    }
    const double target = uniform * total;
    double sum = 0;
    int32_t token = -1;
    for (const auto& candidate : candidates) {
      if (before(last, candidate)) continue;
      token = candidate.id;
      sum += candidate.value;
      if (sum > target) break;
    }
    return token;
  }
};

Sampler::Sampler(int64_t vocab_size, int threads) : vocab_size_(vocab_size), pool_(threads, 0) {
  for (int i = 0; i < pool_.size(); ++i)
    scratch_.push_back(std::make_unique<Scratch>(static_cast<size_t>(vocab_size)));
}

Sampler::~Sampler() = default;

void Sampler::sample(std::span<const SampleInput> inputs, std::span<SampleOutput> outputs) {
  assert(inputs.size() == outputs.size());
  const auto one = [&](int64_t i, int thread) {
    const auto& input = inputs[static_cast<size_t>(i)];
    assert(static_cast<int64_t>(input.logits.size()) == vocab_size_);
    outputs[static_cast<size_t>(i)] = scratch_[static_cast<size_t>(thread)]->sample(input);
  };
  // Waking threads costs some ten microseconds, about what a hundred thousand logits take.
  const auto rows = static_cast<int64_t>(inputs.size());
  if (rows * vocab_size_ < 100000) {
    for (int64_t i = 0; i < rows; ++i) one(i, 0);
    return;
  }
  pool_.run(rows, one);
}

}  // namespace chorus
