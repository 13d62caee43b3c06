// Sampling: each sequence draws its next token from its own last row of logits, one token per step. A request for
// several answers (numReturnSequences) has one sequence for each; they differ in their seeds alone.
#pragma once

#include <vector>

#include "chorus/request.h"
#include "runtime/decoding/decoding_strategy.h"
#include "runtime/decoding/sampling_state.h"
#include "runtime/decoding/word_automaton.h"

namespace chorus {

class SamplingStrategy : public DecodingStrategy {
 public:
  // Makes all sequences of the request. Sequence i has the request's seed plus i.
  explicit SamplingStrategy(const StrategyInput& input);
  ~SamplingStrategy() override;

  void prepare(const Sequence& sequence) override;
  void forget(const Sequence& sequence) noexcept override;
  void addInputs(const Sequence& sequence, const LogitsRows& rows, std::vector<SampleInput>& inputs) override;
  void advance(std::span<const SampledSequence> sampled, Clock::time_point now, SequenceChanges& changes) override;

 private:
  struct Line {
    SamplingState sampling;
    WordAutomaton::State stop_words = WordAutomaton::kStart;  // of stop_words_, for the generated tokens
  };
  Line& lineOf(const Sequence& sequence);
  executor::FinishReason finishReason(const Sequence& sequence, const Line& line) const;

  executor::VecTokens end_ids_;
  WordAutomaton stop_words_;
  std::vector<Line> lines_;  // by index of the sequence
};

}  // namespace chorus
