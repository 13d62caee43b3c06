#include "runtime/answer.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace chorus {

using executor::DataType;
using executor::FinishReason;
using executor::Tensor;

Answer::Answer(AnswerOptions options, int32_t prompt_length, Clock::time_point arrival)
    : options_(std::move(options)), prompt_length_(prompt_length) {
  metrics_.timingMetrics.arrivalTime = arrival;
}

// Number of leading prompt rows whose logits are wanted. They must be computed even if their blocks are cached.
int32_t Answer::promptRowsWanted() const {
  if (options_.output.returnContextLogits) return prompt_length_;
  return options_.output.returnPromptLogProbs ? prompt_length_ - 1 : 0;  // each row scores the next token
}

int32_t Answer::reusableTokens(const Sequence& sequence) const {
  return prompt_rows_kept_ < promptRowsWanted() ? prompt_rows_kept_ : sequence.numTokens() - 1;
}

int32_t Answer::scoredFrom(const Sequence& sequence) const {
  const int32_t wanted = promptRowsWanted();
  const bool wants = prompt_rows_kept_ < wanted && sequence.numCached() < wanted;
  return wants ? prompt_rows_kept_ : std::numeric_limits<int32_t>::max();
}

LogitsWanted Answer::logitsOfNext(const Sequence& sequence, int32_t count, bool samples) const {
  if (sequence.numCached() + count > scoredFrom(sequence)) return LogitsWanted::kAllRows;
  return samples ? LogitsWanted::kLastRow : LogitsWanted::kNone;
}

void Answer::scorePrompt(const Sequence& sequence, const LogitsRows& logits, int32_t first_row,
                         std::vector<SampleInput>& inputs) const {
  if (!options_.output.returnPromptLogProbs) return;
  const auto end = std::min(first_row + logits.rows, prompt_length_ - 1);
  for (int32_t position = std::max(first_row, prompt_rows_kept_); position < end; ++position) {
    SampleInput input;
    input.logits = logits.row(position - first_row);
    input.given = sequence.tokens()[static_cast<size_t>(position) + 1];
    input.want_log_prob = true;
    input.top_log_probs = topLogProbs();
    inputs.push_back(input);
  }
}

void Answer::keepPromptScore(const SampleOutput& score) {
  prompt_log_probs_.push_back(score.log_prob);
  if (topLogProbs() > 0) prompt_top_log_probs_.push_back(score.top);
}

void Answer::keepLogits(const LogitsRows& logits, int32_t first_row, bool samples) {
  vocab_size_ = logits.vocab_size;
  const auto width = static_cast<size_t>(vocab_size_);
  const int32_t wanted = promptRowsWanted();
  for (int32_t row = 0; row < logits.rows && prompt_rows_kept_ < wanted; ++row) {
    if (first_row + row != prompt_rows_kept_) continue;
    if (options_.output.returnContextLogits) {
      if (!context_logits_) context_logits_ = Tensor::cpu(DataType::kFP32, {prompt_length_, vocab_size_});
      const std::span<const float> own = logits.row(row);
      std::copy(own.begin(), own.end(),
                static_cast<float*>(context_logits_.getData()) + static_cast<size_t>(prompt_rows_kept_) * width);
    }
    ++prompt_rows_kept_;
  }
  if (options_.output.returnGenerationLogits && samples) {
    const std::span<const float> last = logits.row(logits.rows - 1);
    generation_logits_.insert(generation_logits_.end(), last.begin(), last.end());
  }
}

void Answer::keepToken(const Sequence& sequence, const SampleOutput& sample, Clock::time_point now) {
  if (wantsLogProbs()) {
    log_probs_.push_back(sample.log_prob);
    cum_log_prob_ += sample.log_prob;
    if (topLogProbs() > 0) top_log_probs_.push_back(sample.top);
  }
  if (sequence.numGenerated() == 1) metrics_.timingMetrics.firstTokenTime = now;
  metrics_.timingMetrics.lastTokenTime = now;
  metrics_.lastIter = metrics_.iter;
}

executor::Result Answer::next(const Sequence& sequence, FinishReason reason) {
  const auto& output = options_.output;
  const bool last = reason != FinishReason::kNOT_FINISHED;
  executor::Result result;
  result.isSequenceFinal = last;
  result.sequenceIndex = sequence.index;
  const int32_t first_generated = sendsOnlyNew() ? num_sent_ : 0;
  const bool with_prompt = !options_.streaming && !output.excludeInputFromOutput;
  const auto tokens = sequence.tokens().subspan(
      with_prompt ? 0 : static_cast<size_t>(sequence.promptLength()) + static_cast<size_t>(first_generated));
  result.outputTokenIds.emplace_back(tokens.begin(), tokens.end());
  addLogProbs(result);
  addGenerationLogits(result);
  result.finishReasons = {reason};
  result.decodingIter = steps_;
  result.cachedTokens = cached_tokens_;
  if (sequence.adapter.parts != nullptr) result.adapterContentHash = sequence.adapter.parts->content_hash;
  if (output.returnPerfMetrics) result.requestPerfMetrics = metrics_;
  // From here on nothing throws, so that a response that cannot be built changes nothing.
  if (sendsPromptScores()) {
    prompt_log_probs_sent_ = true;
    result.promptLogProbs = std::move(prompt_log_probs_);
    if (topLogProbs() > 0) result.promptTopLogProbs = std::move(prompt_top_log_probs_);
  }
  if (context_logits_ && !context_logits_sent_ && (last || prompt_rows_kept_ == prompt_length_)) {
    context_logits_sent_ = true;
    result.contextLogits = context_logits_;
  }
  if (sendsOnlyNew()) {
    log_probs_.clear();
    top_log_probs_.clear();
  }
  if (!options_.return_all_generated) generation_logits_.clear();
  num_sent_ = sequence.numGenerated();
  return result;
}

void Answer::release() noexcept {
  std::vector<float>().swap(log_probs_);
  std::vector<std::vector<executor::TokenLogProb>>().swap(top_log_probs_);
  std::vector<float>().swap(generation_logits_);
  context_logits_ = executor::Tensor();
}

void Answer::addLogProbs(executor::Result& result) const {
  if (!wantsLogProbs()) return;
  result.logProbs.emplace().push_back(log_probs_);
  result.cumLogProbs.emplace().push_back(static_cast<float>(cum_log_prob_));
  if (topLogProbs() > 0) result.topLogProbs.emplace().push_back(top_log_probs_);
}

bool Answer::sendsPromptScores() const {
  return options_.output.returnPromptLogProbs && !prompt_log_probs_sent_ &&
         static_cast<int32_t>(prompt_log_probs_.size()) >= prompt_length_ - 1;
}

void Answer::addGenerationLogits(executor::Result& result) const {
  if (generation_logits_.empty()) return;
  const auto rows = static_cast<int64_t>(generation_logits_.size()) / vocab_size_;
  const auto shape = options_.streaming ? executor::Shape{rows, 1, vocab_size_} : executor::Shape{1, rows, vocab_size_};
  result.generationLogits = Tensor::copyOf(DataType::kFP32, generation_logits_.data(), shape);
}

bool Answer::step(Clock::time_point now, executor::IterationType step) {
  metrics_.iter = step;
  if (steps_++ > 0) return false;
  metrics_.timingMetrics.firstScheduledTime = now;
  metrics_.firstIter = step;
  return true;
}

double Answer::queueLatencyMs() const {
  const auto& timing = metrics_.timingMetrics;
  return std::chrono::duration<double, std::milli>(timing.firstScheduledTime - timing.arrivalTime).count();
}

void Answer::countStart(const Sequence& sequence, int32_t reused, int32_t missed) noexcept {
  if (sequence.state() == SequenceState::kContext) cached_tokens_ = sequence.numCached();
  auto& kv = metrics_.kvCacheMetrics;
  kv.numTotalAllocatedBlocks += reused;
  kv.numReusedBlocks += reused;
  kv.numMissedBlocks += missed;
  const int32_t looked_for = kv.numReusedBlocks + kv.numMissedBlocks;
  if (looked_for > 0) kv.kvCacheHitRate = static_cast<float>(kv.numReusedBlocks) / static_cast<float>(looked_for);
}

void Answer::countNewBlocks(int32_t blocks) noexcept {
  metrics_.kvCacheMetrics.numNewAllocatedBlocks += blocks;
  metrics_.kvCacheMetrics.numTotalAllocatedBlocks += blocks;
}

executor::RequestStats Answer::stats(const Sequence& sequence, executor::IterationType step) const {
  using executor::RequestStage;
  executor::RequestStats stats;
  stats.stage = !sequence.runs()       ? RequestStage::kQUEUED
                : sequence.generates() ? RequestStage::kGENERATION_IN_PROGRESS
                                       : RequestStage::kCONTEXT_IN_PROGRESS;
  stats.contextPrefillPosition = std::min(sequence.numCached(), prompt_length_);
  stats.numGeneratedTokens = sequence.numGenerated();
  stats.avgNumDecodedTokensPerIter = sequence.numGenerated() > 0 ? 1.0f : 0.0f;
  stats.scheduled = metrics_.iter == step;
  stats.paused = paused_at_ == step;
  const auto& kv = metrics_.kvCacheMetrics;
  stats.allocTotalBlocksPerRequest = kv.numTotalAllocatedBlocks;
  stats.allocNewBlocksPerRequest = kv.numNewAllocatedBlocks;
  stats.reusedBlocksPerRequest = kv.numReusedBlocks;
  stats.missedBlocksPerRequest = kv.numMissedBlocks;
  stats.kvCacheHitRatePerRequest = kv.kvCacheHitRate;
  return stats;
}

}  // namespace chorus
