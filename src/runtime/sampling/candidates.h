// Temperature, min-p, top-k and top-p: from a row of logits to the tokens that may be drawn.
//
// Each filter keeps a prefix of the tokens ordered by (logit descending, id ascending), so ties always go to the
// lowest id. top-p counts its mass over what min-p and top-k left, renormalised, and keeps the token that reaches
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sampling/sampling_params.h"

namespace chorus {

struct Candidate {
  float value = 0;  // a logit, or its weight
  int32_t id = 0;
};

// Sized once for a vocabulary.
class CandidateFilter {
 public:
  explicit CandidateFilter(size_t vocab) : weights_(vocab) {}

  // What may be drawn, in order of id, with weights relative to the largest; at least one. most: the largest
  // logit, finite; logits may be minus infinity. Valid until the next call.
  std::span<const Candidate> keep(std::span<const float> logits, float most, const SamplingParams& params);
  // The k likeliest by (logit descending, id ascending), with their logits. Valid until the next call.
  std::span<const Candidate> likeliest(std::span<const float> logits, size_t k);
  // log(sum(exp(logit - most))), added in a fixed order.
  double logSum(std::span<const float> logits, float most);

 private:
  void gather(std::span<const float> logits, float most, const SamplingParams& params);
  void nucleus(float top_p);

  std::vector<float> weights_;
  std::vector<Candidate> kept_;
  std::vector<Candidate> heavy_;  // those that top-p may keep
};

}  // namespace chorus
