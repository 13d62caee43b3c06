// One sequence of a request in the executor: its parameters, tokens, KV blocks, adapters and outputs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "chorus/executor.h"
#include "runtime/adapter_cache/adapter_store.h"
#include "runtime/deadline.h"
#include "runtime/decoding/sampler.h"
#include "runtime/decoding/sampling_state.h"
#include "runtime/logits_post_processors.h"
#include "runtime/return_sequences.h"
#include "runtime/scheduler.h"
#include "runtime/step_builder.h"

namespace chorus {

// Logits rows of one request within a step: [rows, vocab_size]. The step's rows are wider than vocab_size if another
// request's adapter has a larger vocabulary. Not owned.
struct LogitsRows {
  const float* data = nullptr;
  int32_t rows = 0;
  int32_t vocab_size = 0;
  int64_t stride = 0;  // floats between rows

  std::span<const float> row(int32_t i) const { return {data + i * stride, static_cast<size_t>(vocab_size)}; }
};

// Why a request must end early. Set by ExecutorCore::decide(), answered by ExecutorCore::endDecided().
struct Verdict {
  enum class Kind {
    kNone,
    kFinished,  // with `reason`
    kFailed,    // with `error`
  };
  Kind kind = Kind::kNone;
  executor::FinishReason reason = executor::FinishReason::kNOT_FINISHED;
  std::shared_ptr<const Error> error;  // null: out of memory
};

// Created on the caller's thread; afterwards only the step thread uses it.
class ActiveRequest : public QueueEntry {
 public:
  using Clock = std::chrono::steady_clock;

  // If prompt and maxTokens together exceed max_seq_len, maxTokens is reduced with a warning.
  ActiveRequest(executor::IdType id, const executor::Request& request, executor::Executor::ResponseCallback callback,
                int32_t max_seq_len);

  const executor::IdType id;                              // id of this sequence
  const executor::Executor::ResponseCallback callback;    // null: responses go to the ResponseQueue
  const std::optional<executor::LoraConfig> lora;         // task id only; its tensors are in lora_source
  const std::vector<executor::WeightedLora> composition;  // weighted adapters instead of `lora`
  std::shared_ptr<const AdapterSource> lora_source;       // the request's adapter tensors; null without them
  std::optional<Error> refusal;                           // error to answer with at admission
  // Set if the request names tokens outside the model's vocabulary, which its adapter may add; null once they are
  // checked against the loaded adapter.
  std::shared_ptr<const executor::Request> unknown_tokens;
  std::shared_ptr<SequenceGroup> group;  // null: the only sequence of its request
  int32_t sequence_index = 0;
  const Deadline deadline;
  const std::optional<executor::CacheSaltIDType> cache_salt;
  Verdict verdict;

  // The id that enqueue() returned for its request.
  executor::IdType requestId() const { return group != nullptr ? group->request_id : id; }
  std::optional<executor::IdType> clientId() const { return client_id_; }

  // State for the scheduler.
  RequestView view() const;
  int32_t slot = -1;  // of the KV block tables; -1: not running
  int32_t num_cached = 0;
  int32_t blocks_held = 0;
  bool generating = false;
  bool was_paused = false;
  bool queued = false;                     // is in the FairQueue, waiting or running
  bool begun = false;                      // started once or ended: no longer counts against max_queue_size
  uint64_t cache_namespace = 0;            // cache namespace; 0: none assigned
  uint64_t cache_scope = 0;                // eviction scope of its blocks; 0: none assigned
  executor::IterationType started_at = 0;  // step of its latest start
  int32_t times_bypassed = 0;
  AdapterLease adapter;
  PostProcessing post_processing;

  // Drops all computed context but keeps the tokens. iteration: the step that it is paused for.
  void pause(executor::IterationType iteration) noexcept;
  // Call before start(): builds the lookup tables of the sampling rules. If it throws, nothing has changed.
  void prepare() { sampling_.prepare(tokens_); }
  // Number of leading tokens that may come from the prefix cache. The last token, and tokens whose logits are still
  // wanted, must be computed.
  int32_t reusableTokens() const;
  // Starts or resumes in `slot`; the first reused_tokens tokens (reused_blocks blocks) come from the prefix cache.
  // missed_blocks: blocks of its context that the cache lacks.
  void start(int32_t slot, int32_t reused_tokens, int32_t reused_blocks, int32_t missed_blocks) noexcept;
  // Records that its block table now has `blocks` blocks.
  void hold(int32_t blocks);

  std::span<const int32_t> tokens() const { return tokens_; }
  int32_t numTokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t numGenerated() const { return numTokens() - prompt_length_; }

  // Number of leading prompt rows whose logits are wanted. They must be computed even if their blocks are cached.
  int32_t promptRowsWanted() const;
  // Which logits are wanted of the next `count` rows. samples: the last of them yields the next token.
  LogitsWanted logitsOfNext(int32_t count, bool samples) const;
  // Stores the logits that the request asked for. first_row: position in the sequence of the first row of `logits`.
  // samples: the last row yields the next token.
  void keepLogits(const LogitsRows& logits, int32_t first_row, bool samples);
  SampleInput sampleInput(std::span<const float> last_row) const;
  // Appends one entry to `inputs` for each prompt token that these rows score; none unless the request asked for
  // prompt log probabilities. Arguments as for keepLogits(). Call it before keepLogits(), and pass the sampler's
  // outputs to keepPromptScore() in order.
  void scorePrompt(const LogitsRows& logits, int32_t first_row, std::vector<SampleInput>& inputs) const;
  void keepPromptScore(const SampleOutput& score);

  // Appends a sampled token; returns why the request ends with it, or kNOT_FINISHED.
  executor::FinishReason append(const SampleOutput& sample, Clock::time_point now);
  // Records that it takes part in the step that began at `now`. Returns true for its first step.
  bool stepped(Clock::time_point now, executor::IterationType iteration);
  double queueLatencyMs() const;  // from arrival to its first step
  // Statistics after step `iteration`, which must be the latest step.
  executor::RequestStats stats(executor::IterationType iteration) const;

  bool streaming() const { return streaming_; }
  // Builds the next response. With kNOT_FINISHED (streaming only) it has the tokens so far; with any other reason it is
  // the last one of this sequence and must be built once. Sets isFinal if group->unfinished is 1, so this must run
  // before ExecutorCore::respond() decrements that count.
  executor::Response response(executor::FinishReason reason);
  executor::Response errorResponse(ErrorCode code, std::string message) const;

 private:
  executor::FinishReason finishReason(int32_t token) const;
  void addLogProbs(executor::Result& result, int32_t first_generated);
  void addLogits(executor::Result& result, bool last);

  std::optional<executor::IdType> client_id_;
  bool streaming_;
  bool return_all_generated_;
  executor::OutputConfig output_;
  executor::VecTokens end_ids_;
  WordMatches stop_words_;  // matched against the generated tokens
  int32_t prompt_length_;
  int32_t max_new_tokens_;
  SamplingState sampling_;

  std::vector<int32_t> tokens_;  // prompt and generated
  int32_t num_sent_ = 0;         // generated tokens in earlier responses
  std::vector<float> log_probs_;
  double cum_log_prob_ = 0;
  std::vector<std::vector<executor::TokenLogProb>> top_log_probs_;  // one list per generated token
  executor::VecLogProbs prompt_log_probs_;
  std::vector<std::vector<executor::TokenLogProb>> prompt_top_log_probs_;
  bool prompt_log_probs_sent_ = false;
  executor::Tensor context_logits_;  // [prompt_length_, vocab_size_]
  int32_t prompt_rows_kept_ = 0;     // leading prompt rows whose logits were used already
  bool context_logits_sent_ = false;
  std::vector<float> generation_logits_;  // [rows, vocab_size_], for the next response
  int32_t vocab_size_ = 0;
  int32_t decoding_iter_ = 0;
  int32_t cached_tokens_ = 0;  // tokens reused at its first start
  executor::RequestPerfMetrics metrics_;
  std::optional<executor::IterationType> paused_at_;  // step of its latest pause
};

}  // namespace chorus
