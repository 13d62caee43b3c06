// Sampling by its definition in chorus/sampling_config.h: in doubles, over whole rows, with full sorts. Tests compare
// the fast sampler with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/decoding/sampler.h"

namespace chorus::testing {

struct PlainRequest {
  SamplingParams params;
  std::vector<int32_t> prompt, generated;
  std::vector<int32_t> end_ids;
  std::vector<std::vector<int32_t>> bad_words;
  std::vector<float> bias;  // [vocab] or empty

  std::vector<int32_t> tokens() const {
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), generated.begin(), generated.end());
    return all;
  }
};

// The row after bias, temperature, penalties and bans.
inline std::vector<double> plainRow(const std::vector<float>& logits, const PlainRequest& request) {
  const SamplingParams& params = request.params;
  const std::vector<int32_t> tokens = request.tokens();
  std::vector<double> row(logits.begin(), logits.end());
  std::map<int32_t, int> seen, counted;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ++seen[tokens[i]];
    if (i >= request.prompt.size() || i >= static_cast<size_t>(params.prompt_ignore_length)) ++counted[tokens[i]];
  }
  for (size_t i = 0; i < row.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!request.bias.empty()) row[i] += static_cast<double>(request.bias[i]);
    row[i] /= static_cast<double>(params.temperature);
    const auto repetition = static_cast<double>(params.repetition_penalty);
    if (seen.contains(id)) row[i] = row[i] < 0 ? row[i] * repetition : row[i] / repetition;
    if (!counted.contains(id)) continue;
    row[i] -= static_cast<double>(params.presence_penalty);
    row[i] -= static_cast<double>(params.frequency_penalty) * counted[id];
  }
  const auto ban = [&](int32_t id) { row[static_cast<size_t>(id)] = -std::numeric_limits<double>::infinity(); };
  if (static_cast<int32_t>(request.generated.size()) < params.min_tokens) {
    for (const int32_t id : request.end_ids) ban(id);
  }
  const auto wouldEnd = [&](const std::vector<int32_t>& sequence, int32_t next) {
    std::vector<int32_t> longer = tokens;
    longer.push_back(next);
    return longer.size() >= sequence.size() && std::equal(sequence.rbegin(), sequence.rend(), longer.rbegin());
  };
  const auto n = static_cast<size_t>(params.no_repeat_ngram_size);
  for (size_t begin = 0; n > 0 && begin + n <= tokens.size(); ++begin) {
    const std::vector<int32_t> ngram(tokens.begin() + static_cast<ptrdiff_t>(begin),
                                     tokens.begin() + static_cast<ptrdiff_t>(begin + n));
    if (wouldEnd(ngram, ngram.back())) ban(ngram.back());
  }
  for (const auto& word : request.bad_words) {
    if (wouldEnd(word, word.back())) ban(word.back());
  }
  return row;
}

// top-p of the next token.
inline float plainTopP(const PlainRequest& request) {
  const SamplingParams& params = request.params;
  float top_p = params.top_p;
  if (params.top_k > 0) return top_p;
  for (const int32_t token : request.generated) {
    top_p = token == params.top_p_reset_id ? params.top_p : std::max(top_p * params.top_p_decay, params.top_p_min);
  }
  return top_p;
}

struct PlainCandidate {
  int32_t id;
  double weight;
};

// The tokens that min-p, top-k and top-p leave, in order of id; empty if all are banned.
inline std::vector<PlainCandidate> plainKept(const std::vector<double>& row, const PlainRequest& request) {
  const SamplingParams& params = request.params;
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)]; });
  const double most = row[static_cast<size_t>(order[0])];
  if (std::isinf(most)) return {};
  std::vector<PlainCandidate> kept;
  for (const int32_t id : order) {
    const double weight = std::exp(row[static_cast<size_t>(id)] - most);
    if (weight < std::exp(-87.0) || weight < static_cast<double>(params.min_p)) break;
    if (params.top_k > 0 && kept.size() == static_cast<size_t>(params.top_k)) break;
    kept.push_back({id, weight});
  }
  const float top_p = plainTopP(request);
  double total = 0, sum = 0;
  for (const auto& candidate : kept) total += candidate.weight;
  size_t count = 0;
  while (count < kept.size() && (count == 0 || top_p >= 1.0f || sum < static_cast<double>(top_p) * total))
    sum += kept[count++].weight;
  kept.resize(count);
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return kept;
}

// The chosen token; -1 if all are banned.
inline int32_t plainToken(const std::vector<float>& logits, const PlainRequest& request) {
  const std::vector<double> row = plainRow(logits, request);
  const auto kept = plainKept(row, request);
  if (kept.empty()) return -1;
  if (request.params.greedy) return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  double sum = 0, reached = 0;
  for (const auto& candidate : kept) sum += candidate.weight;
  const double target = uniformAt(request.params.seed, request.tokens().size()) * sum;
  for (const auto& candidate : kept) {
    reached += candidate.weight;
    if (reached > target) return candidate.id;
  }
  return kept.back().id;
}

}  // namespace chorus::testing
