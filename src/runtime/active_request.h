// A request on its way through the executor: what was asked, what is known, what it holds, what was answered.
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
#include "runtime/logits_post_processors.h"
#include "runtime/return_sequences.h"
#include "runtime/sampling/sampler.h"
#include "runtime/sampling/sampling_state.h"
#include "runtime/scheduler.h"
#include "runtime/step_builder.h"

namespace chorus {

// Rows of a step's logits that are one request's: those of its vocabulary, which may be less than the step's.
struct LogitsRows {
  const float* data = nullptr;
  int32_t rows = 0;
  int32_t vocab_size = 0;
  int64_t stride = 0;

  std::span<const float> row(int32_t i) const { return {data + i * stride, static_cast<size_t>(vocab_size)}; }
};

// How a request ends before its time, once that is decided.
struct Verdict {
  enum class Kind {
    kNone,
    kFinished,  // by `reason`
    kFailed,    // by `error`
    kDropped,   // its client has the answer already
  };
  Kind kind = Kind::kNone;
  executor::FinishReason reason = executor::FinishReason::kNOT_FINISHED;
  std::shared_ptr<const Error> error;  // null: memory was missing
};

// Made by the caller's thread, then owned by the step thread.
class ActiveRequest : public QueueEntry {
 public:
  using Clock = std::chrono::steady_clock;

  // maxTokens is cut, with a warning, to what max_seq_len leaves beside the prompt.
  ActiveRequest(executor::IdType id, const executor::Request& request, executor::Executor::ResponseCallback callback,
                int32_t max_seq_len);

  const executor::IdType id;                              // of this sequence
  const executor::Executor::ResponseCallback callback;    // null: the response is awaited
  const std::optional<executor::LoraConfig> lora;         // the task id; its tensors are in lora_source
  const std::vector<executor::WeightedLora> composition;  // of adapters, instead of one
  std::shared_ptr<const AdapterSource> lora_source;       // of the tensors, null without them
  std::optional<Error> refusal;                           // what it is answered with at once
  // Set for a request that names tokens which the model does not have: its adapter may.
  std::shared_ptr<const executor::Request> unknown_tokens;
  std::shared_ptr<SequenceGroup> group;  // null: it is the only sequence of its request
  int32_t sequence_index = 0;
  const Deadline deadline;
  const std::optional<executor::CacheSaltIDType> cache_salt;
  Verdict verdict;

  // What the caller knows it by.
  executor::IdType requestId() const { return group != nullptr ? group->request_id : id; }
  std::optional<executor::IdType> clientId() const { return client_id_; }

  // What it holds, as the scheduler sees it.
  RequestView view() const;
  int32_t slot = -1;  // of the KV block tables, while running
  int32_t num_cached = 0;
  int32_t blocks_held = 0;
  bool generating = false;
  bool was_paused = false;
  bool queued = false;                     // it waits or runs in the queue
  bool begun = false;                      // it left the queue for its first step, or for good
  uint64_t reuse_realm = 0;                // 0: not asked for yet
  uint64_t cache_scope = 0;                // whose cached blocks it leaves; 0 as reuse_realm
  executor::IterationType started_at = 0;  // the step for which it started last
  int32_t times_bypassed = 0;
  AdapterTicket adapter;
  PostProcessing post_processing;

  // Gives up all computed context, for the sake of that step; the known tokens stay.
  void pause(executor::IterationType iteration) noexcept;
  // To be called before start(): makes what sampling looks up. May throw; nothing has changed then.
  void prepare() { sampling_.prepare(tokens_); }
  // How many of its tokens, from the start on, need not be computed if the cache has them: the last one and
  // those whose logits it wants do.
  int32_t reusableTokens() const;
  // It starts, or starts again, in this slot behind so many tokens that the cache has; missed_blocks of its
  // context are not there.
  void start(int32_t slot, int32_t reused_tokens, int32_t reused_blocks, int32_t missed_blocks) noexcept;
  // Its table has so many blocks now.
  void hold(int32_t blocks);

  std::span<const int32_t> tokens() const { return tokens_; }
  int32_t numTokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t numGenerated() const { return numTokens() - prompt_length_; }

  // Rows at the start of the sequence whose logits it wants: those that a cache has are to be computed too.
  int32_t promptRowsWanted() const;
  // Which logits it wants of its next `count` rows.
  LogitsWanted logitsOfNext(int32_t count, bool samples) const;
  // Keeps its share of a step's logits, as far as it asked for them. first_row: the logits' first row, counted in
  // positions of the sequence.
  void keepLogits(const LogitsRows& logits, int32_t first_row, bool samples);
  SampleInput sampleInput(std::span<const float> last_row) const;
  // Appends to `inputs` what scores the prompt's tokens by these rows, the arguments as keepLogits'; to be called
  // before it. keepPromptScore takes the outputs in order.
  void scorePrompt(const LogitsRows& logits, int32_t first_row, std::vector<SampleInput>& inputs) const;
  void keepPromptScore(const SampleOutput& score);

  // Appends a sampled token; returns why the request ends with it, or kNOT_FINISHED.
  executor::FinishReason append(const SampleOutput& sample, Clock::time_point now);
  // Takes part in a step that began at `now`. True for its first.
  bool stepped(Clock::time_point now, executor::IterationType iteration);
  double queueLatencyMs() const;  // from arrival to its first step
  // As the last step left it, which was `iteration`.
  executor::RequestStats stats(executor::IterationType iteration) const;

  // Streaming with new tokens to send, or `reason` says that it ended.
  bool streaming() const { return streaming_; }
  // To be called once with a reason to end. The group counts it as unfinished until it is sent.
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
  WordMatches stop_words_;  // of the generated tokens
  int32_t prompt_length_;
  int32_t max_new_tokens_;
  SamplingState sampling_;

  std::vector<int32_t> tokens_;  // prompt and generated
  int32_t num_sent_ = 0;         // generated tokens that were streamed
  std::vector<float> log_probs_;
  double cum_log_prob_ = 0;
  std::vector<std::vector<executor::TokenLogProb>> top_log_probs_;  // of each generated token
  executor::VecLogProbs prompt_log_probs_;
  std::vector<std::vector<executor::TokenLogProb>> prompt_top_log_probs_;
  bool prompt_log_probs_sent_ = false;
  executor::Tensor context_logits_;  // [prompt, vocab]
  int32_t prompt_rows_kept_ = 0;     // rows of the prompt whose logits served already
  bool context_logits_sent_ = false;
  std::vector<float> generation_logits_;  // those of the next response
  int32_t vocab_size_ = 0;
  int32_t decoding_iter_ = 0;
  int32_t cached_tokens_ = 0;  // when it first started
  executor::RequestPerfMetrics metrics_;
  std::optional<executor::IterationType> paused_at_;  // the step for whose sake it was paused last
};

}  // namespace chorus
