// Collects the answer for one sequence of a request (log probabilities, logits, statistics) and makes the responses.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "chorus/response.h"
#include "runtime/decoding/logits_rows.h"
#include "runtime/decoding/sampler.h"
#include "runtime/sequence.h"
#include "runtime/step_builder.h"

namespace chorus {

// The outputs that the client asked for.
struct AnswerOptions {
  executor::OutputConfig output;
  bool streaming = false;
  bool return_all_generated = false;  // in streaming, each response has all tokens so far
};

// Copyable, so that a strategy may continue one sequence as several. Only the step thread uses it.
class Answer {
 public:
  using Clock = std::chrono::steady_clock;

  // arrival: when the request was enqueued.
  Answer(AnswerOptions options, int32_t prompt_length, Clock::time_point arrival);

  // Number of log probabilities of likeliest tokens that each generated token comes with.
  int32_t topLogProbs() const { return options_.output.topLogProbs; }
  bool wantsLogProbs() const { return options_.output.returnLogProbs; }

  // Number of leading tokens of the sequence that may come from the prefix cache. The last token, and tokens whose
  // logits are still wanted, must be computed.
  int32_t reusableTokens(const Sequence& sequence) const;
  // Position of the first prompt token whose logits are still wanted; the largest int32_t if there is none.
  int32_t scoredFrom(const Sequence& sequence) const;
  // Returns which of the sequence's next `count` rows need logits. samples: the last row yields the next token.
  LogitsWanted logitsOfNext(const Sequence& sequence, int32_t count, bool samples) const;
  // Appends one entry to `inputs` for each prompt token that these rows score; none unless the client asked for prompt
  // log probabilities. first_row: position in the sequence of the first row of `logits`. Call it before keepLogits(),
  // and pass the sampler's outputs to keepPromptScore() in order.
  void scorePrompt(const Sequence& sequence, const LogitsRows& logits, int32_t first_row,
                   std::vector<SampleInput>& inputs) const;
  void keepPromptScore(const SampleOutput& score);
  // Keeps the logits that the client asked for. samples: the last row yields the next token.
  void keepLogits(const LogitsRows& logits, int32_t first_row, bool samples);
  // Keeps what belongs to a token that was appended to the sequence.
  void keepToken(const Sequence& sequence, const SampleOutput& sample, Clock::time_point now);

  // Why the sequence ended; kNOT_FINISHED while it has not.
  executor::FinishReason finishReason() const { return finish_reason_; }
  void finish(executor::FinishReason reason) noexcept { finish_reason_ = reason; }

  // The next result: with kNOT_FINISHED (streaming only) it has the tokens so far, with any other reason it is the
  // sequence's last. A call that throws changes nothing.
  executor::Result next(const Sequence& sequence, executor::FinishReason reason);

  // Frees the memory that only further responses would need. Call after the last response of the sequence.
  void release() noexcept;

  // The sequence takes part in step `step`, which began at `now`. Returns true for its first step.
  bool step(Clock::time_point now, executor::IterationType step);
  // Whether `step` is the latest step that it took part in.
  bool tookPartIn(executor::IterationType step) const { return metrics_.iter == step; }
  double queueLatencyMs() const;  // from arrival to its first step
  // Counts a start or resumption of the sequence: `reused` blocks come from the prefix cache, and `missed` blocks of
  // its context are not in it.
  void countStart(const Sequence& sequence, int32_t reused, int32_t missed) noexcept;
  void countNewBlocks(int32_t blocks) noexcept;
  void countPause(executor::IterationType step) noexcept { paused_at_ = step; }
  // Statistics after step `step`, which must be the latest one.
  executor::RequestStats stats(const Sequence& sequence, executor::IterationType step) const;

 private:
  bool sendsOnlyNew() const { return options_.streaming && !options_.return_all_generated; }
  int32_t promptRowsWanted() const;
  bool sendsPromptScores() const;
  void addLogProbs(executor::Result& result) const;
  void addGenerationLogits(executor::Result& result) const;

  AnswerOptions options_;
  int32_t prompt_length_;
  executor::FinishReason finish_reason_ = executor::FinishReason::kNOT_FINISHED;
  int32_t num_sent_ = 0;  // generated tokens in earlier responses
  // One entry for each generated token that further responses will have.
  std::vector<float> log_probs_;
  std::vector<std::vector<executor::TokenLogProb>> top_log_probs_;
  double cum_log_prob_ = 0;  // of all generated tokens
  executor::VecLogProbs prompt_log_probs_;
  std::vector<std::vector<executor::TokenLogProb>> prompt_top_log_probs_;
  bool prompt_log_probs_sent_ = false;
  executor::Tensor context_logits_;  // [prompt_length_, vocab_size_]
  int32_t prompt_rows_kept_ = 0;     // leading prompt rows whose logits were used already
  bool context_logits_sent_ = false;
  std::vector<float> generation_logits_;  // [rows, vocab_size_], for the next response
  int32_t vocab_size_ = 0;
  int32_t steps_ = 0;
  int32_t cached_tokens_ = 0;  // tokens reused at its first start
  executor::RequestPerfMetrics metrics_;
  std::optional<executor::IterationType> paused_at_;  // step of its latest pause
};

}  // namespace chorus
