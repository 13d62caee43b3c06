// From a row of logits to the next token.
//
// A row without rules is read once for the likeliest token. The order is TensorRT-LLM's, as chorus/request.h
// states it: bias, temperature, penalties and bans (LogitRules), min-p, top-k, top-p (CandidateFilter), then one
// draw.
//
// The draw is keyed by (seed, position) and nothing else: a token depends on its own logits, rules, history, seed
// and position, never on batch mates, on pauses or on threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "chorus/types.h"
#include "runtime/sampling/candidates.h"
#include "runtime/sampling/logit_rules.h"
#include "runtime/sampling/sampling_params.h"

namespace chorus {

struct SampleInput {
  std::span<const float> logits;  // [the request's vocabulary], read only
  const SamplingParams* params = nullptr;
  uint64_t position = 0;              // of the token to come, counted from the start of the prompt
  const LogitRules* rules = nullptr;  // null: none
  int32_t num_generated = 0;
  bool want_log_prob = false;
  int32_t top_log_probs = 0;  // likeliest tokens to report beside it
  int32_t given = -1;         // 0 and above: this token is taken, params and rules are not looked at
};

struct SampleOutput {
  enum class Fault {
    kNone,
    kNotFinite,    // the row holds a NaN or an infinity, or nothing else than minus infinities
    kNothingLeft,  // every token is banned
    kNoMemory,     // for what it takes to choose one
  };
  Fault fault = Fault::kNone;
  int32_t token = -1;     // -1 on a fault
  float log_prob = 0.0f;  // of the token, by the log softmax of the raw logits; NaN on a fault
  // The likeliest by (log probability descending, id ascending), by the raw logits too.
  std::vector<executor::TokenLogProb> top;
};

// Uniform in [0, 1), 53 bits, a pure function of its arguments.
double uniformAt(uint64_t seed, uint64_t position);

// Sized once for the largest vocabulary. Not thread-safe: it owns the threads that share the rows of a call.
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
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one a thread
};

}  // namespace chorus
