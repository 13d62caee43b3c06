#include "runtime/active_request.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace chorus {
namespace {

using executor::DataType;
using executor::FinishReason;
using executor::Tensor;

executor::VecTokens endIdsOf(const executor::Request& request) {
  executor::VecTokens ids = request.getExtraEndIds();
  if (request.getEndId()) ids.push_back(*request.getEndId());
  std::erase(ids, -1);
  return ids;
}

std::optional<executor::LoraConfig> taskOf(const executor::Request& request) {
  if (!request.getLoraConfig()) return std::nullopt;
  return executor::LoraConfig(request.getLoraConfig()->getTaskId());
}

int32_t tokensAtMost(const executor::Request& request, int32_t max_seq_len) {
  const auto prompt = static_cast<int64_t>(request.getInputTokenIds().size());
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
    case ErrorCode::kConflict:
      return Code::kCONFLICT;
    case ErrorCode::kInternal:
      break;
  }
  return Code::kINTERNAL;
}

}  // namespace

ActiveRequest::ActiveRequest(executor::IdType id_in, const executor::Request& request,
                             executor::Executor::ResponseCallback callback_in, int32_t max_seq_len)
    : QueueEntry({request.getPriority(), id_in}),
      id(id_in),
      callback(std::move(callback_in)),
      lora(taskOf(request)),
      composition(request.getLoraComposition()),
      deadline(deadlineAfter(request.getAllottedTimeMs())),
      cache_salt(request.getCacheSaltID()),
      client_id_(request.getClientId()),
      streaming_(request.getStreaming()),
      return_all_generated_(request.getReturnAllGeneratedTokens()),
      output_(request.getOutputConfig()),
      end_ids_(endIdsOf(request)),
      prompt_length_(static_cast<int32_t>(request.getInputTokenIds().size())),
      max_new_tokens_(request.getMaxTokens()),
      sampling_(request, end_ids_, tokensAtMost(request, max_seq_len)),
      tokens_(request.getInputTokenIds()) {
  metrics_.timingMetrics.arrivalTime = Clock::now();
  if (const auto& words = request.getStopWords()) {
    for (const auto& word : *words) {
      if (!word.empty()) stop_words_.add(word);
    }
  }
  if (prompt_length_ < max_seq_len && max_new_tokens_ > max_seq_len - prompt_length_) {
    log::warn("request {}: prompt of {} tokens plus maxTokens {} exceed max_seq_len {}; maxTokens is reduced to {}", id,
              prompt_length_, max_new_tokens_, max_seq_len, max_seq_len - prompt_length_);
    max_new_tokens_ = max_seq_len - prompt_length_;
  }
}

RequestView ActiveRequest::view() const {
  RequestView view;
  view.num_tokens = numTokens();
  view.num_cached = num_cached;
  view.final_cached = prompt_length_ + max_new_tokens_ - 1;
  view.blocks_held = blocks_held;
  view.running = slot >= 0;
  view.generating = generating;
  view.was_paused = was_paused;
  view.adapter = adapter.number;
  view.adapters = adapter.uses;
  view.adapter_ready = adapter.ready();
  view.times_bypassed = times_bypassed;
  view.client = queued ? FairQueue::clientOf(*this) : 0;
  view.priority = position.priority;
  return view;
}

void ActiveRequest::pause(executor::IterationType iteration) noexcept {
  sampling_.forget();
  paused_at_ = iteration;
  slot = -1;
  num_cached = 0;
  blocks_held = 0;
  generating = false;
  was_paused = true;
}

int32_t ActiveRequest::promptRowsWanted() const {
  if (output_.returnContextLogits) return prompt_length_;
  return output_.returnPromptLogProbs ? prompt_length_ - 1 : 0;  // each row scores the next token
}

int32_t ActiveRequest::reusableTokens() const {
  return prompt_rows_kept_ < promptRowsWanted() ? prompt_rows_kept_ : numTokens() - 1;
}

void ActiveRequest::start(int32_t slot_in, int32_t reused_tokens, int32_t reused_blocks,
                          int32_t missed_blocks) noexcept {
  slot = slot_in;
  num_cached = reused_tokens;
  blocks_held = reused_blocks;
  if (!was_paused) cached_tokens_ = reused_tokens;
  auto& kv = metrics_.kvCacheMetrics;
  kv.numTotalAllocatedBlocks += reused_blocks;
  kv.numReusedBlocks += reused_blocks;
  kv.numMissedBlocks += missed_blocks;
  const int32_t looked_for = kv.numReusedBlocks + kv.numMissedBlocks;
  if (looked_for > 0) {
    kv.kvCacheHitRate = static_cast<float>(kv.numReusedBlocks) / static_cast<float>(looked_for);
  }
}

void ActiveRequest::hold(int32_t blocks) {
  metrics_.kvCacheMetrics.numNewAllocatedBlocks += blocks - blocks_held;
  metrics_.kvCacheMetrics.numTotalAllocatedBlocks += blocks - blocks_held;
  blocks_held = blocks;
}

LogitsWanted ActiveRequest::logitsOfNext(int32_t count, bool samples) const {
  const int32_t wanted = promptRowsWanted();
  const bool new_rows = num_cached < wanted && num_cached + count > prompt_rows_kept_;
  if (new_rows && prompt_rows_kept_ < wanted) return LogitsWanted::kAllRows;
  return samples ? LogitsWanted::kLastRow : LogitsWanted::kNone;
}

void ActiveRequest::keepLogits(const LogitsRows& logits, int32_t first_row, bool samples) {
  vocab_size_ = logits.vocab_size;
  const auto width = static_cast<size_t>(vocab_size_);
  const int32_t wanted = promptRowsWanted();
  for (int32_t row = 0; row < logits.rows && prompt_rows_kept_ < wanted; ++row) {
    if (first_row + row != prompt_rows_kept_) continue;
    if (output_.returnContextLogits) {
      if (!context_logits_) context_logits_ = Tensor::cpu(DataType::kFP32, {prompt_length_, vocab_size_});
      const std::span<const float> own = logits.row(row);
      std::copy(own.begin(), own.end(),
                static_cast<float*>(context_logits_.getData()) + static_cast<size_t>(prompt_rows_kept_) * width);
    }
    ++prompt_rows_kept_;
  }
  if (output_.returnGenerationLogits && samples) {
    const std::span<const float> last = logits.row(logits.rows - 1);
    generation_logits_.insert(generation_logits_.end(), last.begin(), last.end());
  }
}

SampleInput ActiveRequest::sampleInput(std::span<const float> last_row) const {
  SampleInput input;
  input.logits = last_row;
  input.params = &sampling_.params();
  input.position = static_cast<uint64_t>(tokens_.size());
  input.rules = &sampling_.rules();
  input.num_generated = numGenerated();
  input.want_log_prob = output_.returnLogProbs;
  input.top_log_probs = output_.topLogProbs;
  return input;
}

void ActiveRequest::scorePrompt(const LogitsRows& logits, int32_t first_row, std::vector<SampleInput>& inputs) const {
  if (!output_.returnPromptLogProbs) return;
  const auto end = std::min(first_row + logits.rows, prompt_length_ - 1);
  for (int32_t position = std::max(first_row, prompt_rows_kept_); position < end; ++position) {
    SampleInput input;
    input.logits = logits.row(position - first_row);
    input.given = tokens_[static_cast<size_t>(position) + 1];
    input.want_log_prob = true;
    input.top_log_probs = output_.topLogProbs;
    inputs.push_back(input);
  }
}

void ActiveRequest::keepPromptScore(const SampleOutput& score) {
  prompt_log_probs_.push_back(score.log_prob);
  if (output_.topLogProbs > 0) prompt_top_log_probs_.push_back(score.top);
}

FinishReason ActiveRequest::append(const SampleOutput& sample, Clock::time_point now) {
  tokens_.push_back(sample.token);
  sampling_.append(sample.token);
  stop_words_.append(sample.token);
  if (output_.returnLogProbs) {
    log_probs_.push_back(sample.log_prob);
    cum_log_prob_ += sample.log_prob;
    if (output_.topLogProbs > 0) top_log_probs_.push_back(sample.top);
  }
  if (numGenerated() == 1) metrics_.timingMetrics.firstTokenTime = now;
  metrics_.timingMetrics.lastTokenTime = now;
  metrics_.lastIter = metrics_.iter;
  return finishReason(sample.token);
}

FinishReason ActiveRequest::finishReason(int32_t token) const {
  if (std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end()) return FinishReason::kEND_ID;
  if (stop_words_.endsAny()) return FinishReason::kSTOP_WORDS;
  return numGenerated() >= max_new_tokens_ ? FinishReason::kLENGTH : FinishReason::kNOT_FINISHED;
}

bool ActiveRequest::stepped(Clock::time_point now, executor::IterationType iteration) {
  metrics_.iter = iteration;
  if (decoding_iter_++ > 0) return false;
  metrics_.timingMetrics.firstScheduledTime = now;
  metrics_.firstIter = iteration;
  return true;
}

double ActiveRequest::queueLatencyMs() const {
  const auto& timing = metrics_.timingMetrics;
  return std::chrono::duration<double, std::milli>(timing.firstScheduledTime - timing.arrivalTime).count();
}

executor::RequestStats ActiveRequest::stats(executor::IterationType iteration) const {
  using executor::RequestStage;
  executor::RequestStats stats;
  stats.id = requestId();
  stats.stage = slot < 0     ? RequestStage::kQUEUED
                : generating ? RequestStage::kGENERATION_IN_PROGRESS
                             : RequestStage::kCONTEXT_IN_PROGRESS;
  stats.contextPrefillPosition = std::min(num_cached, prompt_length_);
  stats.numGeneratedTokens = numGenerated();
  stats.avgNumDecodedTokensPerIter = numGenerated() > 0 ? 1.0f : 0.0f;
  stats.scheduled = metrics_.iter == iteration;
  stats.paused = paused_at_ == iteration;
  const auto& kv = metrics_.kvCacheMetrics;
  stats.allocTotalBlocksPerRequest = kv.numTotalAllocatedBlocks;
  stats.allocNewBlocksPerRequest = kv.numNewAllocatedBlocks;
  stats.reusedBlocksPerRequest = kv.numReusedBlocks;
  stats.missedBlocksPerRequest = kv.numMissedBlocks;
  stats.kvCacheHitRatePerRequest = kv.kvCacheHitRate;
  return stats;
}

executor::Response ActiveRequest::response(FinishReason reason) {
  executor::Result result;
  result.sequenceIndex = sequence_index;
  result.isSequenceFinal = reason != FinishReason::kNOT_FINISHED;
  result.isFinal = result.isSequenceFinal && (group == nullptr || group->unfinished == 1);
  const bool only_new = streaming_ && !return_all_generated_;
  const int32_t first_generated = only_new ? num_sent_ : 0;
  const bool with_prompt = !streaming_ && !output_.excludeInputFromOutput;
  result.outputTokenIds.emplace_back(tokens_.begin() + (with_prompt ? 0 : prompt_length_ + first_generated),
                                     tokens_.end());
  addLogProbs(result, first_generated);
  addLogits(result, result.isSequenceFinal);
  result.finishReasons = {reason};
  result.decodingIter = decoding_iter_;
  result.cachedTokens = cached_tokens_;
  if (adapter.parts != nullptr) result.adapterContentHash = adapter.parts->content_hash;
  if (output_.returnPerfMetrics) result.requestPerfMetrics = metrics_;
  num_sent_ = numGenerated();
  return {requestId(), std::move(result), client_id_};
}

executor::Response ActiveRequest::errorResponse(ErrorCode code, std::string message) const {
  return {requestId(), std::move(message), client_id_, responseCode(code)};
}

void ActiveRequest::addLogProbs(executor::Result& result, int32_t first_generated) {
  if (output_.returnLogProbs) {
    result.logProbs.emplace().emplace_back(log_probs_.begin() + first_generated, log_probs_.end());
    result.cumLogProbs.emplace().push_back(static_cast<float>(cum_log_prob_));
    if (output_.topLogProbs > 0)
      result.topLogProbs.emplace().emplace_back(top_log_probs_.begin() + first_generated, top_log_probs_.end());
  }
  if (!output_.returnPromptLogProbs || prompt_log_probs_sent_) return;
  if (static_cast<int32_t>(prompt_log_probs_.size()) < prompt_length_ - 1) return;
  prompt_log_probs_sent_ = true;
  result.promptLogProbs = std::move(prompt_log_probs_);
  if (output_.topLogProbs > 0) result.promptTopLogProbs = std::move(prompt_top_log_probs_);
}

void ActiveRequest::addLogits(executor::Result& result, bool last) {
  if (context_logits_ && !context_logits_sent_ && (last || prompt_rows_kept_ == prompt_length_)) {
    result.contextLogits = context_logits_;
    context_logits_sent_ = true;
  }
  if (generation_logits_.empty()) return;
  const auto rows = static_cast<int64_t>(generation_logits_.size()) / vocab_size_;
  const auto shape = streaming_ ? executor::Shape{rows, 1, vocab_size_} : executor::Shape{1, rows, vocab_size_};
  result.generationLogits = Tensor::copyOf(DataType::kFP32, generation_logits_.data(), shape);
  if (!return_all_generated_) generation_logits_.clear();
}

}  // namespace chorus
