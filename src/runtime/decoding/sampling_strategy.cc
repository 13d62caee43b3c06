#include "runtime/decoding/sampling_strategy.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/adapter_cache/adapter_error.h"
#include "runtime/request.h"
#include "runtime/sequence.h"

namespace chorus {
namespace {

using executor::FinishReason;

executor::VecTokens endIdsOf(const executor::Request& request) {
  executor::VecTokens ids = request.getExtraEndIds();
  if (request.getEndId()) ids.push_back(*request.getEndId());
  std::erase(ids, -1);
  return ids;
}

WordAutomaton stopWordsOf(const executor::Request& request) {
  std::vector<std::span<const int32_t>> words;
  if (const auto& asked = request.getStopWords()) {
    for (const auto& word : *asked) {
      if (!word.empty()) words.emplace_back(word);
    }
  }
  return WordAutomaton(words);
}

// Throws Error if the sampler chose no token.
void checkFault(const Sequence& sequence, const SampleOutput& output) {
  switch (output.fault) {
    case SampleOutput::Fault::kNone:
      return;
    case SampleOutput::Fault::kNothingLeft:
      fail(ErrorCode::kInvalidArgument, "{}",
           sequence.masks == nullptr
               ? "badWords, noRepeatNgramSize, minTokens and embeddingBias together ban every token"
               : "The token mask, badWords, noRepeatNgramSize, minTokens and embeddingBias together ban every token");
    case SampleOutput::Fault::kNotFinite:
      break;
    case SampleOutput::Fault::kNoMemory:
      throw std::bad_alloc();
  }
  if (sequence.post_processing.wanted()) {
    fail(ErrorCode::kInternal,
         "The logits are not finite numbers after the logits post-processor: no token can be chosen");
  }
  // The client chose the weights of a composition.
  if (!sequence.request.composition.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "The logits are not finite numbers with these weights of the adapters: use smaller weights");
  }
  if (sequence.request.lora) {
    throw unusable(ErrorCode::kInvalidArgument, sequence.request.lora->getTaskId(),
                   "makes the logits infinite or NaN: no token can be chosen");
  }
  fail(ErrorCode::kInternal, "The model's logits are not finite numbers: no token can be chosen");
}

}  // namespace

SamplingStrategy::SamplingStrategy(const StrategyInput& input)
    : end_ids_(endIdsOf(input.asked)), stop_words_(stopWordsOf(input.asked)) {
  QueuePosition position = input.first;
  lines_.reserve(static_cast<size_t>(input.count));
  for (int32_t i = 0; i < input.count; ++i, ++position.arrival) {
    const auto seed_offset = static_cast<uint64_t>(i);
    lines_.push_back({SamplingState(input.asked, end_ids_, seed_offset)});
    sequences_.push_back(
        std::make_unique<Sequence>(input.owner, i, position, input.asked.getInputTokenIds(), input.max_tokens));
  }
}

SamplingStrategy::~SamplingStrategy() = default;

SamplingStrategy::Line& SamplingStrategy::lineOf(const Sequence& sequence) {
  return lines_[static_cast<size_t>(sequence.index)];
}

void SamplingStrategy::prepare(const Sequence& sequence) { lineOf(sequence).sampling.prepare(sequence.tokens()); }

void SamplingStrategy::forget(const Sequence& sequence) noexcept { lineOf(sequence).sampling.forget(); }

void SamplingStrategy::addInputs(const Sequence& sequence, const LogitsRows& rows, std::vector<SampleInput>& inputs) {
  const Line& line = lineOf(sequence);
  const Answer& answer = sequence.request.answerOf(sequence);
  SampleInput input;
  input.logits = rows.row(rows.rows - 1);
  input.params = &line.sampling.params();
  input.position = static_cast<uint64_t>(sequence.numTokens());
  input.rules = &line.sampling.rules();
  input.num_generated = sequence.numGenerated();
  input.want_log_prob = answer.wantsLogProbs();
  input.top_log_probs = answer.topLogProbs();
  inputs.push_back(input);
}

void SamplingStrategy::advance(std::span<const SampledSequence> sampled, Clock::time_point now,
                               SequenceChanges& changes) {
  for (const auto& [sequence, outputs] : sampled) checkFault(*sequence, outputs.front());
  for (const auto& [sequence, outputs] : sampled) {
    const SampleOutput& output = outputs.front();
    Line& line = lineOf(*sequence);
    Answer& answer = sequence->request.answerOf(*sequence);
    sequence->append(output.token);
    line.sampling.append(output.token);
    line.stop_words = stop_words_.next(line.stop_words, output.token);
    answer.keepToken(*sequence, output, now);
    answer.finish(finishReason(*sequence, line));
    changes.advanced.push_back(sequence);
  }
}

FinishReason SamplingStrategy::finishReason(const Sequence& sequence, const Line& line) const {
  const int32_t token = sequence.tokens().back();
  if (std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end()) return FinishReason::kEND_ID;
  if (stop_words_.endsAny(line.stop_words)) return FinishReason::kSTOP_WORDS;
  return sequence.numTokens() >= sequence.maxTokens() ? FinishReason::kLENGTH : FinishReason::kNOT_FINISHED;
}

}  // namespace chorus
