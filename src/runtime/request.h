// A request in the executor: what the client asked for, and what it is answered.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "chorus/executor.h"
#include "runtime/adapter_cache/adapter_source.h"
#include "runtime/answer.h"
#include "runtime/deadline.h"
#include "runtime/decoding/decoding_strategy.h"
#include "runtime/sequence.h"

namespace chorus {

// Why a request must end early. Set by RequestTable, answered by ExecutorCore::endDecided().
struct Verdict {
  enum class Kind {
    kNone,
    kFinished,  // each sequence ends with `reason`
    kFailed,    // the request is answered with `error`
  };
  Kind kind = Kind::kNone;
  executor::FinishReason reason = executor::FinishReason::kNOT_FINISHED;
  std::shared_ptr<const Error> error;  // null: out of memory
  bool in_line = false;                // waits for its turn to end (RequestTable::lineUpDecided)
};

// Created on the caller's thread. The inbox sets `adapter_changes`, and may set `cancelled`, under Admission's mutex;
// afterwards only the step thread uses it. Its address never changes.
class Request {
 public:
  using Clock = std::chrono::steady_clock;
  using Callback = executor::Executor::ResponseCallback;

  // `asked` is for numSequences() sequences; `make` makes their strategy. If prompt and maxTokens together exceed
  // max_seq_len, maxTokens is reduced with a warning.
  Request(executor::IdType id, const executor::Request& asked, std::shared_ptr<const Callback> callback,
          int32_t max_seq_len, const MakeStrategy& make);

  // The client's request.
  const executor::IdType id;                       // the id that enqueue() returned
  const std::shared_ptr<const Callback> callback;  // null: responses go to the ResponseQueue
  const std::optional<executor::IdType> client_id;
  const bool streaming;
  const Deadline deadline;
  const Deadline queue_deadline;  // holds until one of its sequences has started
  const std::optional<executor::FairShare> share;
  const std::optional<executor::CacheSaltIDType> cache_salt;
  const std::optional<executor::LoraConfig> lora;         // task id only; its tensors are in lora_source
  const std::vector<executor::WeightedLora> composition;  // weighted adapters instead of `lora`
  std::shared_ptr<const AdapterSource> lora_source;       // the request's adapter tensors; null without them
  std::optional<Error> refusal;                           // error to answer with at admission
  bool cancelled = false;                                 // before its admission
  uint64_t adapter_changes = 0;                           // changes of adapters that came before it
  // Set if the request names tokens outside the model's vocabulary, which its adapter may add; null once they are
  // checked against the loaded adapter.
  std::shared_ptr<const executor::Request> unknown_tokens;

  // The request's sequences that have not ended. They and their strategy belong to the request.
  std::span<const std::unique_ptr<Sequence>> sequences() const { return strategy_->sequences(); }
  DecodingStrategy& strategy() { return *strategy_; }
  bool hasAdapters() const { return lora || !composition.empty(); }
  // The point in time at which it ends if it goes on as now.
  Deadline nextDeadline() const;

  // The answer so far.
  Verdict verdict;
  Answer& answerOf(const Sequence& sequence) { return answers_[static_cast<size_t>(sequence.index)]; }
  // Makes the answer of sequence `index` a copy of the parent's. If it throws, nothing has changed.
  void copyAnswer(const Sequence& parent, int32_t index) {
    Answer copy = answerOf(parent);
    answers_[static_cast<size_t>(index)] = std::move(copy);
  }
  // The sequence's next response, see Answer::next(). It is the request's last one if no other sequence is left. A call
  // that throws changes nothing.
  executor::Response response(const Sequence& sequence, executor::FinishReason reason);
  // The answer to a verdict of kind kFailed.
  executor::Response errorResponse() const;
  // See Answer::stats().
  executor::RequestStats stats(const Sequence& sequence, executor::IterationType step);

  // State that its sequences share on the step thread.
  uint64_t claim_round = 0;      // latest round in which their adapters were claimed together
  uint64_t cache_namespace = 0;  // the request's own cache namespace if requests share no blocks; 0: none
  int32_t namespace_users = 0;   // sequences that use cache_namespace
  bool has_started = false;      // a sequence of it has run

  // The most sequences that it has at once, which were asked for. If there are several, they share blocks even if
  // requests share none.
  int32_t maxSequences() const { return static_cast<int32_t>(answers_.size()); }
  bool several() const { return maxSequences() > 1; }

 private:
  std::vector<Answer> answers_;  // by index of the sequence
  std::unique_ptr<DecodingStrategy> strategy_;
};

}  // namespace chorus
