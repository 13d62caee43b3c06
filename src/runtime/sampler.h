// From a row of logits to the next token.
//
// Filters run in this order, as vLLM and TensorRT-LLM do: banned tokens, temperature, min-p, top-k, top-p;
// then one draw. Each filter keeps a prefix of the tokens ordered by (logit descending, id ascending), so
// ties always go to the lowest id. top-p counts its mass over what min-p and top-k left, renormalised, and
// keeps the token that reaches it.
//
// The draw is keyed by (seed, position) and nothing else: a token depends on its own logits, parameters, seed
// and position, never on batch mates, on pauses or on threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "chorus/request.h"

namespace chorus {

struct SamplingParams {
  bool greedy = true;
  float temperature = 1.0f;
  int32_t top_k = 0;  // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;

  // Greedy with topK 1, with temperature 0, and when none of temperature, topK (above 0), topP, minP is
  // given.
  static SamplingParams from(const executor::SamplingConfig& config);
};

struct SampleInput {
  std::span<const float> logits;  // [vocab], read only
  const SamplingParams* params = nullptr;
  uint64_t position = 0;            // of the token to come, counted from the start of the prompt
  std::span<const int32_t> banned;  // tokens that must not be chosen
  bool want_log_prob = false;
};

struct SampleOutput {
  int32_t token = -1;     // -1: the row holds a NaN or an infinity, or every token is banned
  float log_prob = 0.0f;  // of the token, by the log softmax of the raw logits
};

// Uniform in [0, 1), 53 bits, a pure function of its arguments.
double uniformAt(uint64_t seed, uint64_t position);

// Sized once for a vocabulary. Not thread-safe: it owns the threads that share the rows of a call.
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
