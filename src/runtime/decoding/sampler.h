// Chooses the next token from a row of logits.
//
// A row without rules is read once for the likeliest token. The order is TensorRT-LLM's, see chorus/sampling_config.h:
// bias, temperature, penalties and bans (LogitRules), then the token mask, min-p, top-k, top-p (CandidateFilter), then
// one draw.
//
// The draw depends only on (seed, position). So a token depends on its own logits, rules, history, seed and position,
// and never on other requests of the batch, on pauses or on threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "chorus/types.h"
#include "runtime/decoding/candidates.h"
#include "runtime/decoding/logit_rules.h"
#include "runtime/decoding/sampling_params.h"
#include "runtime/decoding/token_mask.h"

namespace chorus {

struct SampleInput {
  std::span<const float> logits;  // [vocabulary of the request], read only
  const SamplingParams* params = nullptr;
  uint64_t position = 0;              // of the next token, counted from the start of the prompt
  const LogitRules* rules = nullptr;  // null: none
  int32_t num_generated = 0;
  TokenMask mask = {};  // may be set until sample() is called
  bool want_log_prob = false;
  int32_t top_log_probs = 0;  // how many of the likeliest tokens to report as well
  int32_t given = -1;         // if not negative, this token is taken, and params, rules and mask are ignored
};

struct SampleOutput {
  enum class Fault {
    kNone,
    kNotFinite,    // the row holds a NaN or plus infinity, or only minus infinities
    kNothingLeft,  // every token is banned or masked
    kNoMemory,     // an allocation failed
  };
  Fault fault = Fault::kNone;
  int32_t token = -1;     // -1 on a fault
  float log_prob = 0.0f;  // of the token, by log softmax of the raw logits; NaN on kNotFinite and kNoMemory
  // The likeliest tokens by (log probability descending, id ascending), also by the raw logits.
  std::vector<executor::TokenLogProb> top;
};

// A uniform number in [0, 1) with 53 random bits; a pure function of its arguments.
double uniformAt(uint64_t seed, uint64_t position);

// Sized at construction for the largest vocabulary. Not thread-safe; its own threads share the rows of a call.
class Sampler {
 public:
  Sampler(int64_t vocab_size, int threads);
  ~Sampler();

  // inputs and outputs have the same length.
  void sample(std::span<const SampleInput> inputs, std::span<SampleOutput> outputs);

 private:
  struct Scratch;
  int64_t vocab_size_;
  ThreadPool pool_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace chorus
