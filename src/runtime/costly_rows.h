// Limits what costly rows add to steps that several clients share.
//
// All sequences of a step wait for its end. A row with large adapters, or with a composition of many, takes as long as
// many rows of the base model, and so do the attention of a row with a long context, and a token of a prompt with log
// probabilities if the vocabulary is large. So with several clients the costly rows of all clients together take, on
// average, at most as long as the rest of the steps. If those of one step take longer, the following steps make up for
// it.
//
// The limit is higher if every client has costly requests, and had in the last kAway: at least the number of clients
// times the smallest demand, because clients of equal demands slow each other equally. A client's demand is what all
// its costly requests cost in this step; those without a place (RequestView::has_place) do not count.
//
// If costly rows take more than the limit of their step, the excess is owed by the following steps. Each step's limit
// is divided into the clients' credits (runtime/client_credits.h), from which the costs of their rows are taken.
// Clients whose demand is at most their share come first, whatever the others have saved. Then the client with the most
// credit gets the next row, as long as the amount owed plus the costs planned in this step is below the limit. Even if
// more is owed, a client gets a row that its credit covers, provided that the costly rows of this step stay within the
// limit. A sequence without a row in a step keeps its slot and blocks. If nothing else can run, a step has a costly row
// in any case.
//
// If a client without costly requests is there, the costly rows of a step take at most as long as its other rows, and
// in addition as long as one group of generated rows, one chunk of a running context, and the first chunk of a request
// that starts. If the attention of a chunk takes long, the chunk has as few as 16 tokens. What exceeds the limit is
// owed, up to mostOwed() reads: until the following steps have made up for it, only clients whose credit covers their
// rows get costly rows.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
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
  // Reads that a planned sequence takes for its adapters, for its tokens with log probabilities, and for its attention.
  // `scored` includes those tokens' rows of the base model.
  struct Cost {
    double adapters = 0;
    double scored = 0;
    double attention = 0;
    double total() const { return adapters + scored + attention; }
  };
  // After a client without costly requests has left, it is expected to come back within this time.
  static constexpr auto kAway = StepTimes::kAlone;

  // chunked_context: as SchedulerLimits::chunked_context.
  explicit CostlyRows(KvSizes kv = {}, bool chunked_context = true)
      : kv_(std::move(kv)), chunked_context_(chunked_context) {}

  // Begins a step with limits: sets RequestView::skipped of the requests that get no rows in it, running or waiting,
  // and RequestView::max_chunk of contexts with costly attention. chunk: tokens that other contexts are expected to get
  // in a step. most_rows: limit on the generated rows of the step, which RowShares enforces afterwards. Returns how
  // many generating requests are not skipped.
  int64_t beginLimited(std::span<RequestView> requests, const StepPrices& prices, int32_t chunk, int64_t most_rows,
                       Clock::time_point now);
  // Begins a step without limits, and forgets all debts and credits.
  void beginUnlimited(size_t num_requests);
  // Forgets what is owed. Call it if the plan is empty, then begin the step again: only costly requests can run, so
  // they keep nobody waiting.
  void forgive() noexcept { owed_ = 0; }

  // Counts what the planned step costs, and takes it from the clients' credits. Returns the cost of each of
  // plan.sequences, until the next call.
  std::span<const Cost> count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                              const StepPrices& prices) noexcept;

 private:
  // Running requests that get rows together: generating ones of one adapter while their attention takes less than the
  // adapter, or a single other one. It is a range of costly_.
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
    bool met = false;                          // the member's
    double credit = 0;                         // the member's, less what its groups cost that got rows in this step
    size_t next = 0, end = 0;                  // range of groups_
    size_t next_waiting = 0, end_waiting = 0;  // range of waiting_
    RequestView* without_place = nullptr;      // the first one that waits and has no place
  };

  void settle() noexcept;
  bool isCostly(const RequestView& r, const StepPrices& prices) const {
    return isCostlyAdapter(r.adapter_size) || r.scored_from < r.num_tokens ||
           isCostlyAttention(prices, kv_, r.num_tokens, r.generating);
  }
  void collect(std::span<RequestView> requests, const StepPrices& prices);
  int32_t longestChunk(const RequestView& r, const StepPrices& prices, int32_t chunk, double limit) const;
  double chunkCost(RequestView& r, const StepPrices& prices, int32_t chunk, double limit) const;
  Group groupAt(size_t begin, const StepPrices& prices) const;
  bool waitsForOwnContext(const RequestView& r) const;
  void findComputed(size_t begin);
  void makeLanes(const StepPrices& prices, int32_t chunk, double limit);
  bool hasCostly(const ClientCredits::Client& client) const;
  // Reads that the lane's credit covers.
  double coveredBy(const Lane& lane) const { return lane.credit * members_[lane.member].weight; }
  double sharedDemand(std::span<const RequestView> requests, Clock::time_point now);
  void allowStarts(double limit);
  double startNext(Lane& lane);
  void startWithPlace(double limit, double least_credit);
  void startWithoutPlace(double limit, double least_credit);
  void rotateTurns();
  int64_t allowGroups(int64_t rows, int64_t most_rows);
  double limitOf(int64_t generated) const;

  KvSizes kv_;
  bool chunked_context_;
  double owed_ = 0;                      // what earlier steps took beyond their limits
  double row_price_ = 1 / kRowsPerRead;  // StepPrices::row of this step
  // The latest step:
  double spent_ = 0;          // costs of its costly rows
  double rest_ = 0;           // reads of its other rows
  double shared_demand_ = 0;  // sharedDemand()
  bool limited_ = false;      // whether it had a limit

  std::optional<Clock::time_point> others_at_;  // when a client without costly requests was last seen
  ClientCredits credits_;
  uint64_t offers_ = 0;  // steps in which a costly request might start

  // Scratch of one step.
  AdapterCosts adapters_;
  std::vector<RequestView*> costly_;
  std::vector<Group> groups_;
  std::vector<Waiting> waiting_;
  std::vector<uint64_t> computing_;  // blocks that running contexts of the latest of members_ compute, ascending
  // The clients with costly requests, ascending. Their demands are the costs of all their groups, and of their waiting
  // requests that have a place.
  std::vector<ClientCredits::Member> members_;
  std::vector<Lane> lanes_;
  std::vector<Lane*> turns_;
  std::vector<Cost> costs_;
};

}  // namespace chorus
