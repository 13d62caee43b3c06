#include "runtime/decoding/candidates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

// exp(x) for x <= 0, with a relative error of about 1e-7; 0 below -87. Written out so that loops over it are vectorised
// and give the same bits on every instruction set.
inline float expNonPositive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which is in the low bits
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

// Computes the weights exp((x - most) * scale) and returns their sum, added in a fixed order.
double softmaxWeights(std::span<const float> x, float most, float scale, float* weights) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) weights[i + lane] = expNonPositive((x[i + lane] - most) * scale);
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

// The order that all filters use.
bool before(const Candidate& a, const Candidate& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; }
bool byId(const Candidate& a, const Candidate& b) { return a.id < b.id; }

// The first k by (logit descending, id ascending), returned in order of id. Keeps at most 2k candidates at a time and
// sorts nothing by value.
void selectTopK(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  out.clear();
  float threshold = -kInfinity;
  bool shrunk = false;
  const auto shrink = [&] {
    const auto last = out.begin() + static_cast<ptrdiff_t>(k) - 1;
    std::nth_element(out.begin(), last, out.end(), before);
    threshold = last->value;
    out.resize(k);
    shrunk = true;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    // An equal logit with a higher id ranks behind k candidates already.
    if (logits[i] <= threshold) continue;
    out.push_back({logits[i], static_cast<int32_t>(i)});
    if (out.size() == 2 * k) shrink();
  }
  if (out.size() > k) shrink();
  if (!shrunk) return;  // still in order of id
  if (k < logits.size() / 32) {
    std::sort(out.begin(), out.end(), byId);
    return;
  }
  // So many are found again in order of id faster than they are sorted.
  const Candidate last = *std::max_element(out.begin(), out.end(), before);
  out.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<int32_t>(i)};
    if (!before(last, candidate)) out.push_back(candidate);
  }
}

// The last candidate that top-p keeps. Partitions the candidates around the wanted mass, so most are never sorted.
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

}  // namespace

// Fills kept_ with the tokens that min-p and top-k leave, and their weights.
void CandidateFilter::gather(std::span<const float> logits, float most, const SamplingParams& params) {
  const float scale = 1.0f / params.temperature;
  const auto keeps = [&](float weight) { return weight > 0.0f && weight >= params.min_p; };
  const auto k = static_cast<size_t>(params.top_k);
  if (k > 0 && k < logits.size()) {
    selectTopK(logits, k, kept_);
    for (auto& candidate : kept_) candidate.value = expNonPositive((candidate.value - most) * scale);
    std::erase_if(kept_, [&](const Candidate& candidate) { return !keeps(candidate.value); });
    return;
  }
  softmaxWeights(logits, most, scale, weights_.data());
  kept_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (keeps(weights_[i])) kept_.push_back({weights_[i], static_cast<int32_t>(i)});
  }
}

void CandidateFilter::nucleus(float top_p) {
  double total = 0;
  for (const auto& candidate : kept_) total += candidate.value;
  // The candidates lighter than `floor` weigh less together than the mass that top-p drops, so it drops all of them.
  const double floor = (1.0 - top_p) * total / static_cast<double>(kept_.size()) * 0.999999;
  heavy_.clear();
  for (const auto& candidate : kept_) {
    if (candidate.value >= floor) heavy_.push_back(candidate);
  }
  const Candidate last = lastOfNucleus(heavy_, top_p * total);
  std::erase_if(kept_, [&](const Candidate& candidate) { return before(last, candidate); });
}

std::span<const Candidate> CandidateFilter::keep(std::span<const float> logits, float most,
                                                 const SamplingParams& params) {
  gather(logits, most, params);
  if (params.top_p < 1.0f) nucleus(params.top_p);
  return kept_;
}

std::span<const Candidate> CandidateFilter::likeliest(std::span<const float> logits, size_t k) {
  selectTopK(logits, std::min(k, logits.size()), kept_);
  std::sort(kept_.begin(), kept_.end(), before);
  return kept_;
}

double CandidateFilter::logSum(std::span<const float> logits, float most) {
  return std::log(softmaxWeights(logits, most, 1.0f, weights_.data()));
}

}  // namespace chorus
