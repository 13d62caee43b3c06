// Limits what costly rows add to steps that several clients share.
//
// All sequences of a step wait for its end. A row with large adapters, or with a composition of many, takes as long as
// many rows of the base model, and so does a token of a prompt with log probabilities if the vocabulary is large. So
// with several clients the costly rows of all clients together take, on average, at most as long as the rest of the
// steps. If those of one step take longer, the following steps make up for it.
//
// If all clients have costly requests, and no other client was here in the last kAway, the limit is at least the
// smallest demand times the number of clients, because clients of equal demands slow each other equally. Clients whose
// requests have no place do not count.
//
// Each step's limit is divided between the clients max-min fairly, by their weights, and added to their credits, from
// which the costs of their rows are taken. The client with the most credit gets the next row, while what is owed and
// what this step has planned are less than the limit. Even if more is owed, a client gets a row that its credit covers,
// provided that the costly rows of this step stay within the limit. A sequence without a row in a step keeps its slot
// and blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/client_credits.h"
#include "runtime/scheduler.h"
#include "runtime/step_costs.h"
#include "runtime/step_times.h"

namespace chorus {

// Not thread-safe. Costs are in reads (runtime/step_costs.h).
class CostlyRows {
 public:
  using Clock = std::chrono::steady_clock;
  // Reads that a planned sequence takes beside its other rows of the base model. `scored` includes the rows of the base
  // model of its tokens with log probabilities.
  struct Cost {
    double adapters = 0;
    double scored = 0;
    double total() const { return adapters + scored; }
  };
  // A client without costly requests is expected back for this long.
  static constexpr auto kAway = StepTimes::kAlone;

  // Whether rows of such an adapter are costly. size: as RequestView::adapter_size.
  static bool isCostly(double size) { return size > 1 / kRowsPerRead; }
  // Whether any row of a request that waits is costly. scored_from: as RequestView::scored_from.
  static bool isCostly(double size, int32_t scored_from, int32_t num_tokens) {
    return isCostly(size) || scored_from < num_tokens;
  }

  // Begins a step with limits: sets RequestView::skipped of the requests that get no rows in it, running or waiting.
  // chunk: tokens that a context is expected to get in a step. Returns the reads of the generated rows, without their
  // adapters.
  double beginLimited(std::span<RequestView> requests, const TokenPrices& prices, int32_t chunk, Clock::time_point now);
  // Begins a step without limits, and forgets all debts and credits. Returns the same.
  double beginUnlimited(std::span<const RequestView> requests);
  // Forgets what is owed. Call it if the plan is empty: only costly requests can run, so nobody waits for them. Then
  // begin the step again.
  void forgive() noexcept { owed_ = 0; }

  // Counts what the planned step costs. Returns the cost of each of plan.sequences, until the next call.
  std::span<const Cost> count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                              const TokenPrices& prices) noexcept;

 private:
  // Running requests that get rows together: the generating ones of one adapter, or a single other one. It is a range
  // of costly_.
  struct Group {
    size_t begin = 0, end = 0;
    double cost = 0;  // expected
    int32_t steps_without_row = 0;
  };
  struct Waiting {
    RequestView* request = nullptr;
    double cost = 0;  // expected, of its first chunk
  };
  // The costly requests of one client.
  struct Lane {
    size_t member = 0;                         // index in members_
    size_t next = 0, end = 0;                  // range of groups_
    size_t next_waiting = 0, end_waiting = 0;  // range of waiting_
    RequestView* without_place = nullptr;      // the first one that waits and has no place
  };

  void settle() noexcept;
  void collect(std::span<RequestView> requests);
  void makeLanes(const TokenPrices& prices, int32_t chunk);
  bool hasCostly(const ClientCredits::Client& client) const;
  ClientCredits::Member& memberOf(const Lane& lane) { return members_[lane.member]; }
  double sharedDemand(std::span<const RequestView> requests, Clock::time_point now);
  void allowStarts(double limit);
  int64_t allowGroups(int64_t rows);
  double limitOf(int64_t generated) const;

  double owed_ = 0;                                         // what earlier steps took beyond their limits
  double spent_ = 0;                                        // in the latest step
  double rest_ = 0;                                         // what its other rows took
  double shared_demand_ = 0;                                // lower bound of its limit
  bool limited_ = false;                                    // whether it had a limit
  Clock::time_point others_at_ = Clock::time_point::min();  // when a client without costly requests was last seen
  ClientCredits credits_;
  uint64_t offers_ = 0;  // steps in which a costly request might start

  // Scratch of one step.
  AdapterCosts adapters_;
  std::vector<RequestView*> costly_;
  std::vector<Group> groups_;
  std::vector<Waiting> waiting_;
  // The clients with costly requests, ascending. Their demands are what all their groups and waiting requests cost. The
  // costs of groups that get rows in this step are taken from the credits here, so that other clients come next.
  std::vector<ClientCredits::Member> members_;
  std::vector<Lane> lanes_;
  std::vector<Lane*> turns_;
  std::vector<Cost> costs_;
};

}  // namespace chorus
