// The sampling state of a sequence, updated token by token. It depends on the known tokens alone, so it is the same for
// any batch, chunks and pauses.
#pragma once

#include <algorithm>
#include <span>

#include "runtime/decoding/logit_rules.h"

namespace chorus {

class SamplingState {
 public:
  // end_ids: see LogitRules. seed_offset is added to the request's seed.
  SamplingState(const executor::Request& request, std::span<const int32_t> end_ids, uint64_t seed_offset = 0)
      : params_(SamplingParams::from(request.getSamplingConfig())),
        initial_top_p_(params_.top_p),
        rules_(params_, request, end_ids) {
    params_.seed += seed_offset;
  }

  // The parameters for the next token: top_p is the value after decay.
  const SamplingParams& params() const { return params_; }
  const LogitRules& rules() const { return rules_; }

  // See LogitRules::prepare() and forget().
  void prepare(std::span<const int32_t> tokens) { rules_.prepare(tokens); }
  void forget() noexcept { rules_.forget(); }

  // See LogitRules::append().
  void append(int32_t generated) {
    rules_.append(generated);
    // TensorRT-LLM decays top-p only when it samples without top-k.
    if (params_.top_k > 0) return;
    params_.top_p = generated == params_.top_p_reset_id
                        ? initial_top_p_
                        : std::max(params_.top_p * params_.top_p_decay, params_.top_p_min);
  }

 private:
  SamplingParams params_;
  float initial_top_p_;
  LogitRules rules_;
};

}  // namespace chorus
