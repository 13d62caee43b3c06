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

std::optional<ActiveRequest::Clock::time_point> deadlineOf(const executor::Request& request) {
  // Longer is as good as none, and could not be added to a time.
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  if (!request.getAllottedTimeMs() || *request.getAllottedTimeMs() > kForever) return std::nullopt;
  return ActiveRequest::Clock::now() + *request.getAllottedTimeMs();
}

}  // namespace

ActiveRequest::ActiveRequest(executor::IdType id_in, const executor::Request& request,
                             executor::Executor::ResponseCallback callback_in, int32_t max_seq_len)
    : id(id_in),
      callback(std::move(callback_in)),
      lora(taskOf(request)),
      position{request.getPriority(), id_in},
      deadline(deadlineOf(request)),
      client_id_(request.getClientId()),
      streaming_(request.getStreaming()),
      return_all_generated_(request.getReturnAllGeneratedTokens()),
      output_(request.getOutputConfig()),
      sampling_(SamplingParams::from(request.getSamplingConfig())),
      end_ids_(endIdsOf(request)),
      stop_words_(request.getStopWords()),
      min_tokens_(request.getSamplingConfig().getMinTokens().value_or(0)),
      prompt_length_(static_cast<int32_t>(request.getInputTokenIds().size())),
      max_new_tokens_(request.getMaxTokens()),
      tokens_(request.getInputTokenIds()) {
  metrics_.arrivalTime = Clock::now();
  if (prompt_length_ < max_seq_len && max_new_tokens_ > max_seq_len - prompt_length_) {
    log::warn(
        "request {}: prompt of {} tokens and maxTokens {} exceed max_seq_len {}; maxTokens is cut to {}", id,
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
  view.adapter_ready = adapter.ready();
  view.adapter_cost = adapter.parts != nullptr ? static_cast<int64_t>(adapter.parts->bytes) : 0;
  view.times_bypassed = times_bypassed;
  return view;
}

void ActiveRequest::pause() {
  slot = -1;
  num_cached = 0;
  blocks_held = 0;
  generating = false;
  was_paused = true;
}

LogitsWanted ActiveRequest::logitsOfNext(int32_t count, bool samples) const {
  const bool prompt_rows = num_cached < prompt_length_ && num_cached + count > context_logits_kept_;
  if (output_.returnContextLogits && prompt_rows && context_logits_kept_ < prompt_length_) {
    return LogitsWanted::kAllRows;
  }
  return samples ? LogitsWanted::kLastRow : LogitsWanted::kNone;
}

void ActiveRequest::keepLogits(std::span<const float> logits, int32_t vocab_size, int32_t first_row,
                               bool samples) {
  vocab_size_ = vocab_size;
  const auto width = static_cast<size_t>(vocab_size);
  if (output_.returnContextLogits && context_logits_kept_ < prompt_length_) {
    if (!context_logits_) context_logits_ = Tensor::cpu(DataType::kFP32, {prompt_length_, vocab_size});
    auto* all = static_cast<float*>(context_logits_.getData());
    const auto rows = static_cast<int32_t>(logits.size() / width);
    for (int32_t row = 0; row < rows && first_row + row < prompt_length_; ++row) {
      if (first_row + row != context_logits_kept_) continue;
      std::copy_n(logits.begin() + static_cast<ptrdiff_t>(row) * vocab_size, width,
                  all + static_cast<size_t>(context_logits_kept_) * width);
      ++context_logits_kept_;
    }
  }
  if (output_.returnGenerationLogits && samples) {
    generation_logits_.insert(generation_logits_.end(), logits.end() - vocab_size, logits.end());
  }
}

SampleInput ActiveRequest::sampleInput(std::span<const float> last_row) const {
  SampleInput input;
  input.logits = last_row;
  input.params = &sampling_;
  input.position = static_cast<uint64_t>(tokens_.size());
  if (numGenerated() < min_tokens_) input.banned = end_ids_;
  input.want_log_prob = output_.returnLogProbs;
  return input;
}

FinishReason ActiveRequest::append(const SampleOutput& sample, Clock::time_point now) {
  tokens_.push_back(sample.token);
  if (output_.returnLogProbs) {
    log_probs_.push_back(sample.log_prob);
    cum_log_prob_ += sample.log_prob;
  }
  if (numGenerated() == 1) metrics_.firstTokenTime = now;
  metrics_.lastTokenTime = now;
  return finishReason(sample.token);
}

FinishReason ActiveRequest::finishReason(int32_t token) const {
  if (std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end()) return FinishReason::kEND_ID;
  if (endsWithStopWord()) return FinishReason::kSTOP_WORDS;
  return numGenerated() >= max_new_tokens_ ? FinishReason::kLENGTH : FinishReason::kNOT_FINISHED;
}

bool ActiveRequest::endsWithStopWord() const {
  const auto generated = std::span(tokens_).subspan(static_cast<size_t>(prompt_length_));
  return std::any_of(stop_words_.begin(), stop_words_.end(), [&](const executor::VecTokens& word) {
    return word.size() <= generated.size() && std::equal(word.rbegin(), word.rend(), generated.rbegin());
  });
}

void ActiveRequest::stepped(Clock::time_point now) {
  if (decoding_iter_++ == 0) metrics_.firstScheduledTime = now;
}

executor::Response ActiveRequest::response(FinishReason reason) {
  executor::Result result;
  result.isFinal = reason != FinishReason::kNOT_FINISHED;
  const bool only_new = streaming_ && !return_all_generated_;
  const int32_t first_generated = only_new ? num_sent_ : 0;
  const bool with_prompt = !streaming_ && !output_.excludeInputFromOutput;
  result.outputTokenIds.emplace_back(tokens_.begin() + (with_prompt ? 0 : prompt_length_ + first_generated),
                                     tokens_.end());
  if (output_.returnLogProbs) {
    result.logProbs.emplace().emplace_back(log_probs_.begin() + first_generated, log_probs_.end());
    result.cumLogProbs.emplace().push_back(static_cast<float>(cum_log_prob_));
  }
  addLogits(result, result.isFinal);
  result.finishReasons = {reason};
  result.decodingIter = decoding_iter_;
  if (output_.returnPerfMetrics) result.requestPerfMetrics = metrics_;
  num_sent_ = numGenerated();
  return {id, std::move(result), client_id_};
}

void ActiveRequest::addLogits(executor::Result& result, bool last) {
  if (context_logits_ && !context_logits_sent_ && (last || context_logits_kept_ == prompt_length_)) {
    result.contextLogits = context_logits_;
    context_logits_sent_ = true;
  }
  if (generation_logits_.empty()) return;
  const auto rows = static_cast<int64_t>(generation_logits_.size()) / vocab_size_;
  result.generationLogits = Tensor::of(DataType::kFP32, generation_logits_.data(), {1, rows, vocab_size_});
  generation_logits_.clear();
}

}  // namespace chorus
