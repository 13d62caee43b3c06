#include "runtime/request.h"

#include <algorithm>

#include "base/log.h"
#include "runtime/adapter_cache/adapter_error.h"
#include "runtime/return_sequences.h"

namespace chorus {
namespace {

std::optional<executor::LoraConfig> taskOf(const executor::Request& request) {
  if (!request.getLoraConfig()) return std::nullopt;
  return executor::LoraConfig(request.getLoraConfig()->getTaskId());
}

// The most tokens of a sequence, prompt included.
int32_t maxTokensOf(executor::IdType id, const executor::Request& request, int32_t max_seq_len) {
  const auto prompt = static_cast<int64_t>(request.getInputTokenIds().size());
  if (prompt < max_seq_len && prompt + request.getMaxTokens() > max_seq_len) {
    log::warn("request {}: prompt of {} tokens plus maxTokens {} exceed max_seq_len {}; maxTokens is reduced to {}", id,
              prompt, request.getMaxTokens(), max_seq_len, max_seq_len - prompt);
  }
  return static_cast<int32_t>(std::min<int64_t>(prompt + request.getMaxTokens(), max_seq_len));
}

executor::ResponseErrorCode responseCode(ErrorCode code) {
  using Code = executor::ResponseErrorCode;
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return Code::kINVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return Code::kUNSUPPORTED;
    case ErrorCode::kNotFound:
      return Code::kNOT_FOUND;
    case ErrorCode::kCorrupt:
      return Code::kCORRUPT;
    case ErrorCode::kExhausted:
      return Code::kEXHAUSTED;
    case ErrorCode::kBusy:
      return Code::kBUSY;
    case ErrorCode::kTooLarge:
      return Code::kTOO_LARGE;
    case ErrorCode::kConflict:
      return Code::kCONFLICT;
    case ErrorCode::kInternal:
      break;
  }
  return Code::kINTERNAL;
}

}  // namespace

Request::Request(executor::IdType id_in, const executor::Request& asked, std::shared_ptr<const Callback> callback_in,
                 int32_t max_seq_len, const MakeStrategy& make)
    : id(id_in),
      callback(std::move(callback_in)),
      client_id(asked.getClientId()),
      streaming(asked.getStreaming()),
      deadline(deadlineAfter(asked.getAllottedTimeMs())),
      queue_deadline(deadlineAfter(asked.getQueueTimeMs())),
      share(asked.getFairShare()),
      cache_salt(asked.getCacheSaltID()),
      lora(taskOf(asked)),
      composition(asked.getLoraComposition()) {
  const int32_t count = numSequences(asked);
  const auto arrival = Clock::now();
  answers_.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    answers_.emplace_back(AnswerOptions{outputOfSequence(asked, i), streaming, asked.getReturnAllGeneratedTokens()},
                          static_cast<int32_t>(asked.getInputTokenIds().size()), arrival);
  }
  strategy_ = make({.owner = *this,
                    .asked = asked,
                    .count = count,
                    .first = {asked.getPriority(), id},
                    .max_tokens = maxTokensOf(id, asked, max_seq_len)});
}

Deadline Request::nextDeadline() const {
  if (has_started || !queue_deadline) return deadline;
  return deadline ? std::min(*deadline, *queue_deadline) : queue_deadline;
}

executor::Response Request::response(const Sequence& sequence, executor::FinishReason reason) {
  // Allocated first: nothing may throw once the answer counts the result as sent.
  const auto result = std::make_shared<executor::Result>();
  *result = answerOf(sequence).next(sequence, reason);
  result->isFinal = result->isSequenceFinal && sequences().size() == 1;
  return {id, result, client_id};
}

executor::Response Request::errorResponse() const {
  if (verdict.error == nullptr) return {id, "std::bad_alloc", client_id, responseCode(ErrorCode::kExhausted)};
  std::optional<executor::AdapterFault> fault;
  if (const auto* of_adapter = dynamic_cast<const AdapterError*>(verdict.error.get())) fault = of_adapter->fault();
  return {id, verdict.error->what(), client_id, responseCode(verdict.error->code()), std::move(fault)};
}

executor::RequestStats Request::stats(const Sequence& sequence, executor::IterationType step) {
  executor::RequestStats stats = answerOf(sequence).stats(sequence, step);
  stats.id = id;
  return stats;
}

}  // namespace chorus
