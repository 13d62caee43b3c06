// The sequences that may have rows in the next step: the running ones, and those waiting ones that may start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/admission.h"
#include "runtime/core_options.h"
#include "runtime/scheduler.h"
#include "runtime/sequence_blocks.h"

namespace chorus {

// Used by the step thread alone.
class StepCandidates {
 public:
  // The most candidates of a step.
  static size_t mostOf(const CoreOptions& options) {
    return static_cast<size_t>(options.scheduler.max_batch_size) + Admission::kLookahead;
  }
  // The references must outlive this object.
  StepCandidates(const CoreOptions& options, Admission& admission, SequenceBlocks& blocks);

  // Collects the candidates of step number `step`: `running`, then waiting sequences in the order of the queue's turns.
  // limits_costly: costly requests are limited (runtime/costly_rows.h), so only a few of those that wait are
  // candidates.
  void collect(std::span<Sequence* const> running, bool limits_costly, uint64_t step);

  // The candidates and their views, in the same order, until the next collect().
  std::span<Sequence* const> sequences() const { return sequences_; }
  Sequence& at(int32_t i) const { return *sequences_[static_cast<size_t>(i)]; }
  std::span<RequestView> views() { return views_; }
  const RequestView& viewAt(int32_t i) const { return views_[static_cast<size_t>(i)]; }

 private:
  // Waiting costly sequences of one client.
  struct CostlyWaiting {
    std::optional<uint64_t> client;
    int seen = 0;
  };
  // The client with the most running sequences for its weight.
  struct Largest {
    int64_t running = 0;
    int64_t weight = 1;
  };

  double adapterSize(const AdapterLease& lease) const;
  RequestView viewOf(Sequence& sequence, uint64_t step);
  bool isCostly(const Sequence& sequence) const;
  void add(Sequence& sequence, uint64_t step);
  void addWaiting(const Largest& largest, bool limits_costly, uint64_t step);
  bool takeCostly(const Sequence& sequence);

  const CoreOptions& options_;
  Admission& admission_;
  SequenceBlocks& blocks_;
  std::vector<Sequence*> sequences_;
  std::vector<RequestView> views_;
  std::vector<CostlyWaiting> costly_waiting_;
  int costly_candidates_ = 0;
};

}  // namespace chorus
