// Strategies by which the sequences of a request get their next tokens.
//
// In a step the executor runs some of the request's sequences through the network. For each of them that is about to
// get new tokens, the strategy adds the sampler's inputs (addInputs), one per row of logits or more. The executor
// applies logits post-processors and token masks to the inputs and samples all requests of the step together. Then each
// strategy receives the outputs of all its sequences at once (advance) and appends tokens. It may also continue one
// sequence as several (fork), and drop sequences: a beam search chooses among the continuations of all its beams.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "chorus/request.h"
#include "runtime/decoding/logits_rows.h"
#include "runtime/decoding/sampler.h"
#include "runtime/fair_queue.h"

namespace chorus {

class Request;
class Sequence;

// A sequence in whose step new tokens are chosen, with the sampler's outputs for the inputs that addInputs() added.
struct SampledSequence {
  Sequence* sequence = nullptr;
  std::span<const SampleOutput> outputs;
};

// Lists the sequences that a call of advance() changed. The executor acts on this list; the vectors are reused from
// step to step.
struct SequenceChanges {
  std::vector<Sequence*> advanced;  // got tokens; the answer says whether they are complete
  std::vector<Sequence*> forked;    // made by fork(); they wait for a slot, and then continue
  // Sequences that end without an answer. Only the last sequence of a request answers, with the reason kCANCELLED: a
  // request ends with a response.
  std::vector<Sequence*> dropped;

  void clear() {
    advanced.clear();
    forked.clear();
    dropped.clear();
  }
};

// Owns the sequences of one request. Created on the caller's thread; afterwards only the step thread uses it.
class DecodingStrategy {
 public:
  using Clock = std::chrono::steady_clock;

  DecodingStrategy();
  virtual ~DecodingStrategy();
  DecodingStrategy(const DecodingStrategy&) = delete;
  DecodingStrategy& operator=(const DecodingStrategy&) = delete;

  // The sequences that have not ended, in order of their index.
  std::span<const std::unique_ptr<Sequence>> sequences() const { return sequences_; }
  // Destroys one of sequences().
  void end(Sequence& sequence) noexcept;

  // Builds what the strategy looks up in the tokens of a sequence that starts or resumes. If it throws, nothing has
  // changed. forget() drops it when the sequence is paused, so that waiting sequences hold no such memory.
  virtual void prepare(const Sequence& sequence) = 0;
  virtual void forget(const Sequence& sequence) noexcept = 0;

  // Returns how many rows of logits the sequence needs: those of the last tokens of a step, at least 1. A step with
  // fewer tokens of the sequence has fewer rows.
  virtual int32_t numRows(const Sequence&) const { return 1; }
  // Adds the inputs for the sequence's next tokens. rows: the last numRows() rows of its logits, or all of this step. A
  // sequence with a logits post-processor or token masks may have one input only.
  virtual void addInputs(const Sequence& sequence, const LogitsRows& rows, std::vector<SampleInput>& inputs) = 0;
  // Appends the next tokens to the sequences and to their answers, and finishes the answers of those that are complete.
  // sampled: all sequences of the request that sampled in this step, in order of their index; none has the fault
  // kNoMemory. At least one sequence is left. Throws Error, with nothing changed, if no token can be chosen: the
  // request then fails. After any other exception the step fails.
  virtual void advance(std::span<const SampledSequence> sampled, Clock::time_point now, SequenceChanges& changes) = 0;

 protected:
  // Makes a sequence that continues `parent`: with its tokens and adapters, and a copy of its answer. It shares the
  // blocks that the parent has completed. index: below Request::maxSequences(), and that of no other sequence. Add it
  // to SequenceChanges::forked. If it throws, nothing has changed.
  Sequence& fork(const Sequence& parent, int32_t index);

  std::vector<std::unique_ptr<Sequence>> sequences_;
};

// The arguments from which a strategy is made.
struct StrategyInput {
  Request& owner;
  const executor::Request& asked;
  int32_t count = 1;    // sequences that were asked for; the strategy may begin with fewer, and not have more at once
  QueuePosition first;  // position of sequence 0; sequence i has i more as arrival number
  int32_t max_tokens = 0;  // the most tokens of a sequence, prompt included
};
using MakeStrategy = std::function<std::unique_ptr<DecodingStrategy>(const StrategyInput&)>;

// The strategy that the request asks for.
std::unique_ptr<DecodingStrategy> makeStrategy(const StrategyInput& input);

}  // namespace chorus
