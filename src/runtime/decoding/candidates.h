// Temperature, min-p, top-k and top-p: from a row of logits to the candidates for the draw.
//
// Each filter keeps a prefix of the tokens ordered by (logit descending, id ascending), so ties go to the lowest id.
// top-p renormalises the weights that min-p and top-k left; it keeps tokens up to and including the one that reaches
// its mass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/decoding/sampling_params.h"

namespace chorus {

struct Candidate {
  float value = 0;  // a logit or a weight
  int32_t id = 0;
};

// Not thread-safe. Sized at construction for a vocabulary.
class CandidateFilter {
 public:
  explicit CandidateFilter(size_t vocab) : weights_(vocab) {}

  // The candidates for the draw, at least one, in order of id, with weights relative to the largest. most: the largest
  // logit, which is finite; other logits may be minus infinity. Valid until the next call.
  std::span<const Candidate> keep(std::span<const float> logits, float most, const SamplingParams& params);
  // The k likeliest tokens by (logit descending, id ascending), with their logits. Valid until the next call.
  std::span<const Candidate> likeliest(std::span<const float> logits, size_t k);
  // log(sum(exp(logit - most))), added in a fixed order.
  double logSum(std::span<const float> logits, float most);

 private:
  std::span<const Candidate> topK(std::span<const float> logits, size_t k);

  std::vector<float> weights_;
  // Scratch keeps its largest size, so that a step which needs no more than an earlier one neither allocates nor
  // clears.
  std::vector<Candidate> kept_;
  std::vector<Candidate> members_;  // candidates among which the last one that a filter keeps is sought
  std::vector<float> picked_;       // the logits that top-k keeps, in order of id
  std::vector<int32_t> ids_;        // and their ids
};

}  // namespace chorus
