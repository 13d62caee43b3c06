// The sequences that a step is planned from: the running ones, and those at the front of the queue. Some of these
// cannot start yet, because their adapters are not ready.
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
#include "runtime/step_costs.h"

namespace chorus {

// Used by the step thread alone.
class StepCandidates {
 public:
  static size_t maxCandidates(const CoreOptions& options) {
    return static_cast<size_t>(options.scheduler.max_batch_size) + Admission::kLookahead;
  }
  // The references must outlive this object.
  StepCandidates(const CoreOptions& options, Admission& admission, SequenceBlocks& blocks);

  // Collects the candidates of step number `step`: `running`, then waiting sequences in the order of the queue's turns.
  // costly_prices: set if costly requests are limited (runtime/costly_rows.h), so only a few of those that wait are
  // candidates.
  void collect(std::span<Sequence* const> running, const std::optional<StepPrices>& costly_prices, uint64_t step);

  // The candidates and their views, in the same order, until the next collect() or until a sequence ends.
  std::span<Sequence* const> sequences() const { return sequences_; }
  Sequence& sequenceAt(int32_t i) const { return *sequences_[static_cast<size_t>(i)]; }
  std::span<RequestView> views() { return views_; }
  const RequestView& viewAt(int32_t i) const { return views_[static_cast<size_t>(i)]; }

 private:
  // Waiting costly sequences of one client.
  struct CostlyWaiting {
    std::optional<uint64_t> client;
    int seen = 0;
  };
  // The client with the most running sequences for its weight. They may be paused for clients with fewer.
  struct Largest {
    int64_t running = 0;
    int64_t weight = 1;
  };

  RequestView viewOf(Sequence& sequence);
  bool isCostly(const Sequence& sequence, const StepPrices& prices) const;
  void add(Sequence& sequence);
  void addWaiting(const Largest& largest, const std::optional<StepPrices>& costly_prices);
  bool admitCostly(const Sequence& sequence);

  const CoreOptions& options_;
  const KvSizes kv_;
  Admission& admission_;
  SequenceBlocks& blocks_;
  std::vector<Sequence*> sequences_;
  std::vector<RequestView> views_;
  uint64_t step_ = 0;
  std::vector<CostlyWaiting> costly_waiting_;
  int costly_admitted_ = 0;
};

}  // namespace chorus
