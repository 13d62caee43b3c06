// The executor's second part: plans a step, runs it on the network, and chooses the next tokens.
//
// Sequences start and pause here.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/admission.h"
#include "runtime/core_options.h"
#include "runtime/costly_rows.h"
#include "runtime/decoding/decoding_strategy.h"
#include "runtime/decoding/sampler.h"
#include "runtime/request_table.h"
#include "runtime/row_shares.h"
#include "runtime/scheduler.h"
#include "runtime/sequence_blocks.h"
#include "runtime/step_builder.h"
#include "runtime/step_candidates.h"
#include "runtime/step_runner.h"
#include "runtime/step_times.h"

namespace chorus {

// Used by the step thread alone.
class StepLoop {
 public:
  using Clock = std::chrono::steady_clock;

  StepLoop(const StepLoop&) = delete;
  // The references must outlive this object.
  StepLoop(const CoreOptions& options, const LogitsPostProcessors& post_processors, RequestTable& requests,
           Admission& admission, StepRunner& runner);

  // Decides what the next step computes, and pauses and starts sequences accordingly. Returns false if there is nothing
  // to compute. If it throws, the next call plans again.
  bool plan();
  // Begins the planned step at `now`: counts it and takes blocks. Then run() runs it on the network and advances the
  // sequences that sample; requests for which no token can be chosen get a verdict. If one of them throws, the step has
  // failed; call failRunning(), which decides that all running requests fail.
  void begin(Clock::time_point now);
  void run();
  void failRunning(const std::exception& error) noexcept;
  // The changes that the strategies made in the last run().
  const SequenceChanges& changes() const { return changes_; }

  std::span<Sequence* const> running() const { return running_; }
  // Number of the latest step that began.
  executor::IterationType latestStep() const { return steps_ - 1; }
  // Statistics of that step, without what is known at its end only.
  const executor::IterationStats& stepStats() const { return step_stats_; }
  const executor::KvCacheStats& countBlocks() { return blocks_.count(); }
  // When the network of that step began and ended; the begin of the step if it failed before.
  Clock::time_point networkBegan() const { return network_began_; }
  Clock::time_point networkEnded() const { return network_ended_; }
  // Sequences paused since the start.
  int64_t pauses() const { return pauses_; }

  // Releases slot, blocks and cache namespace of a sequence that ends.
  void release(Sequence& sequence) noexcept;

 private:
  // A sequence that samples in this step, and the range of its inputs in sample_inputs_.
  struct Sampling {
    Sequence* sequence = nullptr;
    size_t begin = 0;
    size_t end = 0;
  };

  Sequence& plannedAt(const PlannedSequence& planned) const { return candidates_.sequenceAt(planned.request_index); }
  void planLimited(Clock::time_point now);
  void planUnlimited(Clock::time_point now);
  void scheduleStep(Clock::time_point now, int64_t rows);
  void applyPlan();
  void start(Sequence& sequence);
  void pause(Sequence& sequence) noexcept;
  void countStep();
  void failMask(Request& request);
  void beginMasks();
  void collectInputs(std::span<const float> logits, int64_t width);
  void postProcess();
  void finishMasks();
  void keepPromptScores();
  void advance();
  void failWith(Request& request, const std::string& message);

  const CoreOptions& options_;
  const LogitsPostProcessors& post_processors_;
  RequestTable& requests_;
  Admission& admission_;
  StepRunner& runner_;
  SequenceBlocks blocks_;
  const KvSizes kv_;
  StepCandidates candidates_;  // the plan's indices refer to these
  StepBuilder builder_;
  StepTimes step_times_;
  CostlyRows costly_rows_;
  RowShares row_shares_;
  Sampler sampler_;
  std::vector<Sequence*> running_;     // in the order they started
  executor::IterationType steps_ = 0;  // steps begun
  executor::IterationStats step_stats_;
  StepWork step_work_;
  Clock::time_point network_began_, network_ended_;
  int64_t pauses_ = 0;
  SequenceChanges changes_;

  // Scratch of the current step; members so that their memory is reused.
  SchedulerPlan plan_;
  std::vector<StepSequence> step_sequences_;
  std::vector<Sampling> sampling_;  // in the order of the plan
  std::vector<SampleInput> sample_inputs_;
  std::vector<SampleOutput> sample_outputs_;
  std::vector<SampledSequence> sampled_;
  std::vector<Sequence*> scored_;  // for each of score_inputs_, the sequence whose prompt it scores
  std::vector<SampleInput> score_inputs_;
  std::vector<SampleOutput> score_outputs_;
  std::vector<PostProcessed> post_processed_;
  std::vector<size_t> post_processed_of_;  // for each of post_processed_, its index in sampling_
  std::vector<uint64_t> step_adapters_;
};

}  // namespace chorus
