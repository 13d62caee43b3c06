#include "runtime/decoding/sampler.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <new>

#include "runtime/decoding/numerics.h"

namespace chorus {
namespace {

// Logits per block. The largest logit is kept per block, so that finding the likeliest token after edits reads only few
// blocks again.
constexpr size_t kBlock = 1024;

// The largest of value(i) for i in [begin, end).
template <typename Value>
inline float largestOf(size_t begin, size_t end, Value value) {
  std::array<float, kLanes> most;
  most.fill(-kInfinity);
  size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float v = value(i + lane);
      most[lane] = v > most[lane] ? v : most[lane];
    }
  }
  for (; i < end; ++i) most[0] = value(i) > most[0] ? value(i) : most[0];
  return *std::max_element(most.begin(), most.end());
}

bool holdsNan(std::span<const float> x) {
  std::array<int32_t, kLanes> nan{};
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) nan[lane] |= x[i + lane] != x[i + lane];
  }
  for (; i < x.size(); ++i) nan[0] |= x[i] != x[i];
  return std::any_of(nan.begin(), nan.end(), [](int32_t bad) { return bad != 0; });
}

}  // namespace

double uniformAt(uint64_t seed, uint64_t position) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t bits = mixBits(mixBits(seed + kGolden) + (position + 1) * kGolden);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

// Buffers of one thread.
struct Sampler::Scratch {
  std::vector<float> edited;      // the row with its edits and mask
  size_t blocks = 0;              // in the row
  std::vector<float> block_most;  // largest logit of each block before edits
  std::vector<uint8_t> touched;   // 1: the block holds edits
  LogitEdits edits;
  CandidateFilter filter;

  explicit Scratch(size_t vocab)
      : edited(vocab),
        block_most((vocab + kBlock - 1) / kBlock),
        touched(block_most.size()),
        edits(vocab),
        filter(vocab) {}

  void sample(const SampleInput& input, SampleOutput& output) {
    output.token = -1;
    output.fault = SampleOutput::Fault::kNone;
    output.top.clear();
    blocks = (input.logits.size() + kBlock - 1) / kBlock;
    const float raw_most = scan(input.logits);
    if (!std::isfinite(raw_most)) {
      output.fault = SampleOutput::Fault::kNotFinite;
      output.log_prob = std::nanf("");
      return;
    }
    if (input.given >= 0) {
      output.token = input.given;
    } else {
      const bool rules = input.rules != nullptr && input.rules->active(input.num_generated);
      edits.begin(input.logits);
      if (rules) input.rules->apply(input.num_generated, edits);
      const bool masked = !input.mask.allowsAll();
      if (masked) mask(input);
      const Candidate best = masked                ? bestMasked(input.logits.size())
                             : edits.all().empty() ? firstOf(input.logits, raw_most)
                                                   : bestEdited(input.logits);
      if (best.value == -kInfinity) {
        output.fault = SampleOutput::Fault::kNothingLeft;
        return;
      }
      output.token = input.params->greedy ? best.id : draw(input, best.value);
    }
    if (input.want_log_prob) addLogProbs(input, raw_most, output);
  }

  // Finds each block's largest logit in one pass. Returns the row's largest, or NaN if the row holds one.
  float scan(std::span<const float> logits) {
    float most = -kInfinity;
    bool nan = false;
    for (size_t block = 0; block < blocks; ++block) {
      const size_t begin = block * kBlock, end = std::min(begin + kBlock, logits.size());
      block_most[block] = largestOf(begin, end, [&](size_t i) { return logits[i]; });
      most = std::max(most, block_most[block]);
      nan |= holdsNan(logits.subspan(begin, end - begin));
    }
    return nan ? std::nanf("") : most;
  }

  // The lowest id with the largest logit of a row without edits.
  Candidate firstOf(std::span<const float> logits, float most) const {
    const auto end = block_most.begin() + static_cast<ptrdiff_t>(blocks);
    const auto block = std::find(block_most.begin(), end, most) - block_most.begin();
    const auto first = std::find(logits.begin() + block * static_cast<ptrdiff_t>(kBlock), logits.end(), most);
    return {most, static_cast<int32_t>(first - logits.begin())};
  }

  // The likeliest token of the edited row: the better of the best edit and the best logit without an edit. Blocks
  // without edits are read again only if they may hold it.
  Candidate bestEdited(std::span<const float> logits) {
    Candidate best{-kInfinity, -1};
    std::fill(touched.begin(), touched.end(), uint8_t{0});
    for (const auto& [token, value] : edits.all()) {
      touched[static_cast<size_t>(token) / kBlock] = 1;
      if (value > best.value || (value == best.value && token < best.id)) best = {value, token};
    }
    const std::span<const int32_t> index = edits.index();
    const auto unedited = [&](size_t i) { return index[i] < 0 ? logits[i] : -kInfinity; };
    for (size_t block = 0; block < blocks; ++block) {
      const size_t begin = block * kBlock, end = std::min(begin + kBlock, logits.size());
      const float most = touched[block] != 0 ? largestOf(begin, end, unedited) : block_most[block];
      if (most < best.value || most == -kInfinity) continue;
      for (size_t i = begin; i < end; ++i) {
        if (unedited(i) != most) continue;
        const auto id = static_cast<int32_t>(i);
        if (most > best.value || id < best.id) best = {most, id};
        break;
      }
    }
    return best;
  }

  // Writes the row with its edits into `edited`, with minus infinity for the tokens that the mask does not allow.
  void mask(const SampleInput& input) {
    for (size_t i = 0; i < input.logits.size(); ++i) edited[i] = input.mask.allows(i) ? input.logits[i] : -kInfinity;
    for (const auto& [token, value] : edits.all()) {
      if (input.mask.allows(static_cast<size_t>(token))) edited[static_cast<size_t>(token)] = value;
    }
  }
  Candidate bestMasked(size_t vocab) const {
    const float most = largestOf(0, vocab, [&](size_t i) { return edited[i]; });
    const auto first = std::find(edited.begin(), edited.begin() + static_cast<ptrdiff_t>(vocab), most);
    return {most, static_cast<int32_t>(first - edited.begin())};
  }

  // Precondition: if there is a mask, mask() was called.
  int32_t draw(const SampleInput& input, float most) {
    std::span<const float> logits = input.logits;
    if (input.mask.allowsAll() && !edits.all().empty()) {
      std::copy(logits.begin(), logits.end(), edited.begin());
      for (const auto& [token, value] : edits.all()) edited[static_cast<size_t>(token)] = value;
    }
    if (!input.mask.allowsAll() || !edits.all().empty()) logits = std::span<const float>(edited).first(logits.size());
    const std::span<const Candidate> kept = filter.keep(logits, most, *input.params);
    double total = 0;
    for (const auto& candidate : kept) total += candidate.value;
    const double target = uniformAt(input.params->seed, input.position) * total;
    double sum = 0;
    for (const auto& candidate : kept) {
      sum += candidate.value;
      if (sum > target) return candidate.id;
    }
    return kept.back().id;
  }

  void addLogProbs(const SampleInput& input, float most, SampleOutput& output) {
    const double log_sum = filter.logSum(input.logits, most);
    const auto logProb = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - most - log_sum); };
    const auto token = static_cast<size_t>(output.token);
    output.log_prob = logProb(token < input.logits.size() ? input.logits[token] : -kInfinity);
    if (input.top_log_probs == 0) return;
    for (const auto& [logit, id] : filter.likeliest(input.logits, static_cast<size_t>(input.top_log_probs)))
      output.top.push_back({id, logProb(logit)});
  }
};

Sampler::Sampler(int64_t vocab_size, int threads) : vocab_size_(vocab_size), pool_(threads, 0) {
  for (int i = 0; i < pool_.size(); ++i) scratch_.push_back(std::make_unique<Scratch>(static_cast<size_t>(vocab_size)));
}

Sampler::~Sampler() = default;

void Sampler::sample(std::span<const SampleInput> inputs, std::span<SampleOutput> outputs) {
  assert(inputs.size() == outputs.size());
  const auto one = [&](int64_t i, int thread) {
    const auto& input = inputs[static_cast<size_t>(i)];
    assert(static_cast<int64_t>(input.logits.size()) <= vocab_size_);
    SampleOutput& output = outputs[static_cast<size_t>(i)];
    try {
      scratch_[static_cast<size_t>(thread)]->sample(input, output);
    } catch (const std::bad_alloc&) {
      output.fault = SampleOutput::Fault::kNoMemory;
      output.log_prob = std::nanf("");
    }
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
