#include "runtime/decoding/candidates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

// x or 0, by its bits: GCC makes branches of larger conditional expressions, and does not vectorise them.
inline float orZero(float x, bool keeps) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & (0u - static_cast<uint32_t>(keeps)));
}

// exp(x) for x <= 0, with a relative error of about 1e-7; 0 below -87. Written out so that loops over it are vectorised
// and give the same bits on every instruction set.
inline float expNonPositive(float x) {
  // Clamped by its bits, see orZero().
  const int32_t magnitude = std::bit_cast<int32_t>(x) & 0x7fffffff;
  const int32_t over = std::bit_cast<int32_t>(87.0f) - magnitude;  // negative if beyond
  const float clamped = -std::bit_cast<float>(magnitude + (over & (over >> 31)));
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
  return orZero(scaled, over >= 0);
}

// Computes the weights exp((x - most) * scale), with 0 for those below `least`, and returns their sum, added in a fixed
// order.
double softmaxWeights(std::span<const float> x, float most, float scale, float least, float* weights) {
  std::array<double, kLanes> sums{};
  constexpr size_t kBlock = 1024;  // stays in the nearest cache between the two loops, which are vectorised only apart
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, x.size());
    for (size_t i = begin; i < end; ++i) {
      const float weight = expNonPositive((x[i] - most) * scale);
      weights[i] = orZero(weight, weight >= least);
    }
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
    }
    for (; i < end; ++i) sums[0] += weights[i];
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

// The order that all filters use.
bool before(const Candidate& a, const Candidate& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; }
bool byId(const Candidate& a, const Candidate& b) { return a.id < b.id; }

template <typename T>
void growTo(std::vector<T>& scratch, size_t size) {
  if (scratch.size() < size) scratch.resize(size);
}

// Unsigned numbers in the order of the floats; both zeros have the same.
inline uint32_t orderedBits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 + 0 is +0
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

// before(), negated, for a fixed `last` and without branches: a full row takes a few cycles per token however its
// tokens lie.
class NotBehind {
 public:
  explicit NotBehind(const Candidate& last) : last_(last) {}
  bool operator()(float value, int32_t id) const {
    return static_cast<bool>(static_cast<unsigned>(value > last_.value) |
                             (static_cast<unsigned>(value == last_.value) & static_cast<unsigned>(id <= last_.id)));
  }

 private:
  Candidate last_;
};

// Buckets of a histogram over floats, by the highest bits in which floats of a range may differ.
constexpr int kBucketBits = 10;
constexpr size_t kBuckets = size_t{1} << kBucketBits;
// Neighbours often fall into the same bucket. Each bucket has this many sums, so that an addition seldom waits for the
// one before it.
constexpr size_t kBucketLanes = 4;
// So few candidates are sorted faster than they are counted.
constexpr size_t kFew = 128;

struct Bucket {
  uint32_t least = 0, most = 0;  // orderedBits() of its floats
  bool single() const { return least == most; }
};

// Finds the bucket of [range.least, range.most] in which the sum of masses, from the largest float down, reaches
// `wanted`; the lowest that is not empty if none does. Floats out of the range are left out. Adds the mass ahead of the
// bucket to `ahead`.
template <typename ValueAt, typename Mass>
Bucket bucketReaching(Bucket range, size_t size, ValueAt value_at, Mass mass, double wanted, double& ahead) {
  std::array<std::array<double, kBucketLanes>, kBuckets + 1> sums{};  // the last holds those out of range
  const int shift = std::max(0, static_cast<int>(std::bit_width(range.most - range.least)) - kBucketBits);
  const auto add = [&](size_t i, size_t lane) {
    const float value = value_at(i);
    const uint32_t bucket = (orderedBits(value) - range.least) >> shift;
    sums[std::min(bucket, static_cast<uint32_t>(kBuckets))][lane] += mass(value);
  };
  size_t i = 0;
  for (; i + kBucketLanes <= size; i += kBucketLanes) {
    for (size_t lane = 0; lane < kBucketLanes; ++lane) add(i + lane, lane);
  }
  for (; i < size; ++i) add(i, 0);
  uint32_t found = 0;
  double ahead_of_found = ahead;
  for (uint32_t bucket = ((range.most - range.least) >> shift) + 1; bucket-- > 0;) {
    const auto& lanes = sums[bucket];
    const double sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if (sum == 0) continue;
    found = bucket;
    ahead_of_found = ahead;
    if (ahead + sum >= wanted) break;
    ahead += sum;
  }
  ahead = ahead_of_found;
  const uint32_t least = range.least + (found << shift);
  return {least, std::min(range.most, least + ((uint32_t{1} << shift) - 1))};
}

// The first candidate in the filters' order with which the sum of masses reaches `wanted`; the last one if none does.
// Looks only at floats of the range, of which there is at least one; each has a positive mass. Nothing is compared but
// the few candidates that share the highest bits with the one sought, so the time hardly depends on the floats.
template <typename CandidateAt, typename Mass>
Candidate lastWithin(Bucket range, size_t size, CandidateAt candidate_at, Mass mass, double wanted,
                     std::vector<Candidate>& members) {
  double ahead = 0;
  const auto narrow = [&](const auto& at) {
    if (!range.single())
      range = bucketReaching(range, size, [&](size_t i) { return at(i).value; }, mass, wanted, ahead);
    size_t count = 0;
    for (size_t i = 0; i < size; ++i) {
      const Candidate candidate = at(i);
      members[count] = candidate;
      count += static_cast<size_t>(orderedBits(candidate.value) - range.least <= range.most - range.least);
    }
    size = count;
  };
  growTo(members, size);
  narrow(candidate_at);
  while (size > kFew && !range.single()) narrow([&](size_t i) { return members[i]; });
  if (range.single()) {  // equal floats, in order of id
    const double more = std::ceil((wanted - ahead) / mass(members[0].value));
    return members[static_cast<size_t>(std::clamp(more, 1.0, static_cast<double>(size))) - 1];
  }
  std::sort(members.begin(), members.begin() + static_cast<ptrdiff_t>(size), before);
  for (size_t i = 0; i + 1 < size; ++i) {
    ahead += mass(members[i].value);
    if (ahead >= wanted) return members[i];
  }
  return members[size - 1];
}

// How many of the values reach a limit, and the least and the largest of those.
struct Reaching {
  size_t count = 0;
  float least = kInfinity, most = -kInfinity;
};
Reaching reaching(std::span<const float> values, float limit) {
  std::array<float, kLanes> least, most;
  least.fill(kInfinity);
  most.fill(-kInfinity);
  std::array<int32_t, kLanes> counts{};
  const auto add = [&](float value, size_t lane) {
    const float low = value >= limit ? value : kInfinity;
    counts[lane] += value >= limit ? 1 : 0;
    least[lane] = low < least[lane] ? low : least[lane];
    most[lane] = value > most[lane] ? value : most[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(values[i + lane], lane);
  }
  for (; i < values.size(); ++i) add(values[i], 0);
  Reaching result{0, *std::min_element(least.begin(), least.end()), *std::max_element(most.begin(), most.end())};
  for (const int32_t count : counts) result.count += static_cast<size_t>(count);
  return result;
}

// The first k logits above minus infinity by (logit descending, id ascending), returned in order of id. Keeps at most
// 2k candidates at a time, and reads the row once. Gives up and returns false if the likeliest tokens come late, so
// that it would select again and again.
bool selectFew(std::span<const float> logits, size_t k, std::vector<Candidate>& out, size_t& size) {
  growTo(out, 2 * k);
  size = 0;
  float threshold = -kInfinity;
  size_t selections = 0;
  const auto shrink = [&] {
    const auto last = out.begin() + static_cast<ptrdiff_t>(k) - 1;
    std::nth_element(out.begin(), last, out.begin() + static_cast<ptrdiff_t>(size), before);
    threshold = last->value;
    size = k;
    ++selections;
  };
  const size_t most_selections = 16 + logits.size() / (16 * k);
  for (size_t i = 0; i < logits.size(); ++i) {
    // An equal logit with a higher id ranks behind k candidates already.
    if (logits[i] <= threshold) continue;
    out[size++] = {logits[i], static_cast<int32_t>(i)};
    if (size < 2 * k) continue;
    if (selections == most_selections) return false;
    shrink();
  }
  if (size > k) shrink();
  if (selections > 0) std::sort(out.begin(), out.begin() + static_cast<ptrdiff_t>(size), byId);
  return true;
}

}  // namespace

// The first k logits above minus infinity by (logit descending, id ascending), in order of id.
std::span<const Candidate> CandidateFilter::topK(std::span<const float> logits, size_t k) {
  size_t size = 0;
  // More are faster found by their bits.
  constexpr size_t kFewOf = 128;
  if (k <= logits.size() / kFewOf && selectFew(logits, k, kept_, size))
    return std::span<const Candidate>(kept_).first(size);
  const Reaching finite = reaching(logits, std::numeric_limits<float>::lowest());
  Candidate last{finite.least, std::numeric_limits<int32_t>::max()};
  if (finite.count > k) {
    last = lastWithin(
        {orderedBits(finite.least), orderedBits(finite.most)}, logits.size(),
        [&](size_t i) { return Candidate{logits[i], static_cast<int32_t>(i)}; }, [](float) { return 1.0; },
        static_cast<double>(k), members_);
  }
  growTo(kept_, logits.size());
  const NotBehind keeps(last);
  size = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    kept_[size] = {logits[i], id};
    size += static_cast<size_t>(keeps(logits[i], id));
  }
  return std::span<const Candidate>(kept_).first(size);
}

std::span<const Candidate> CandidateFilter::keep(std::span<const float> logits, float most,
                                                 const SamplingParams& params) {
  const auto k = static_cast<size_t>(params.top_k);
  const bool limited = k > 0 && k < logits.size();
  size_t size = logits.size();
  if (limited) {
    const std::span<const Candidate> top = topK(logits, k);
    size = top.size();
    growTo(picked_, size);
    growTo(ids_, size);
    for (size_t i = 0; i < size; ++i) {
      picked_[i] = top[i].value;
      ids_[i] = top[i].id;
    }
    logits = std::span<const float>(picked_).first(size);
  }
  const double total = softmaxWeights(logits, most, 1.0f / params.temperature, params.min_p, weights_.data());
  const bool nucleus = params.top_p < 1.0f;
  // The candidates lighter than `floor` weigh less together than the mass that top-p drops, so it drops all of them.
  const double floor = nucleus ? (1.0 - params.top_p) * total / static_cast<double>(size) * 0.999999 : 0.0;
  // `floor` as a float, rounded down. It is positive, so that tokens of weight zero are left out too.
  const float least = std::max(static_cast<float>(floor) * 0.999999f, std::numeric_limits<float>::denorm_min());
  growTo(kept_, size);
  size_t count = 0;
  const auto gather = [&](auto id_at) {
    for (size_t i = 0; i < size; ++i) {
      kept_[count] = {weights_[i], id_at(i)};
      count += static_cast<size_t>(weights_[i] >= least);
    }
  };
  if (limited) {
    gather([&](size_t i) { return ids_[i]; });
  } else {
    gather([](size_t i) { return static_cast<int32_t>(i); });
  }
  if (nucleus) {
    const Reaching heavy = reaching(std::span<const float>(weights_).first(size), least);
    const Candidate last = lastWithin(
        {orderedBits(heavy.least), orderedBits(heavy.most)}, count, [&](size_t i) { return kept_[i]; },
        [](float weight) { return static_cast<double>(weight); }, params.top_p * total, members_);
    const NotBehind keeps(last);
    size = std::exchange(count, 0);
    for (size_t i = 0; i < size; ++i) {
      const Candidate candidate = kept_[i];
      kept_[count] = candidate;
      count += static_cast<size_t>(keeps(candidate.value, candidate.id));
    }
  }
  return std::span<const Candidate>(kept_).first(count);
}

std::span<const Candidate> CandidateFilter::likeliest(std::span<const float> logits, size_t k) {
  const size_t size = topK(logits, std::min(k, logits.size())).size();
  std::sort(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(size), before);
  return std::span<const Candidate>(kept_).first(size);
}

double CandidateFilter::logSum(std::span<const float> logits, float most) {
  return std::log(softmaxWeights(logits, most, 1.0f, 0.0f, weights_.data()));
}

}  // namespace chorus
