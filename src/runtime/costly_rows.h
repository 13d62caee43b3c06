// Limits what costly rows add to steps that several clients share.
//
// All sequences of a step wait for its end. A row with large adapters, or with a composition of many, takes as long as
// many rows of the base model, and so does a token of a prompt with log probabilities if the vocabulary is large. So
// with several clients the costly rows of all clients together take, on average, at most as long as the rest of the
// steps. If those of one step take longer, the following steps make up for it. If all clients have costly rows, the
// limit is at least the number of clients times the smallest demand, because clients of equal demands slow each other
// equally.
//
// Clients divide this time max-min fairly, by their weights. A client that asks for no more than an equal share always
// gets its rows. Among the others, the next row goes to the client that was served the least. A sequence without a row
// in a step keeps its slot and its blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/scheduler.h"
#include "runtime/step_costs.h"

namespace chorus {

// Not thread-safe. Costs are in reads (runtime/step_costs.h).
class CostlyRows {
 public:
  using Clock = std::chrono::steady_clock;
  // What a planned sequence costs: its adapters, and its scored tokens including their rows of the base model.
  struct Cost {
    double adapters = 0;
    double scored = 0;
    double total() const { return adapters + scored; }
  };
  // Beyond this, no more is owed to later steps.
  static constexpr double kMostOwed = 64;
  // A client without costly requests is expected back for this long.
  static constexpr std::chrono::seconds kAway{10};

  // Begins a step with limits: sets RequestView::skipped of the requests that get no rows in it. At most one costly
  // request starts. Returns the reads of the generated rows, without their adapters.
  double beginLimited(std::span<RequestView> requests, const TokenPrices& prices, uint64_t turn, Clock::time_point now);
  // Begins a step without limits, and forgets what was owed and served. Returns the same.
  double beginUnlimited(std::span<const RequestView> requests);
  // Forgets what is owed: nobody waits for it, because no request without costs can run. Then begin the step again.
  void forgive() noexcept { owed_ = 0; }

  // Counts what the planned step costs. Returns the cost of each of plan.sequences, until the next call.
  std::span<const Cost> count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                              const TokenPrices& prices) noexcept;

 private:
  using Client = std::optional<uint64_t>;
  struct Costly {
    RequestView* request = nullptr;
    double cost = 0;  // expected
  };
  // The costly requests of one client, a range of costly_: first the running ones.
  struct Lane {
    Client client;
    size_t next = 0, begin_waiting = 0, end = 0;
    double demand = 0;  // of the running ones
    double served = 0;  // that of served_, and the expected costs of this step divided by the weight
  };

  void settle() noexcept;
  void collect(std::span<RequestView> requests, const TokenPrices& prices);
  void makeLanes();
  const Lane* laneOf(const Client& client) const;
  double sharedDemand(std::span<const RequestView> requests, Clock::time_point now);
  void allow(Lane& lane, double& planned, int64_t& rows);

  double owed_ = 0;                                         // what earlier steps took beyond their limits
  double spent_ = 0;                                        // in the latest step
  double rest_ = 0;                                         // what the rows without costs took in it
  double shared_demand_ = 0;                                // lower bound of its limit
  bool limited_ = false;                                    // whether it had a limit
  Clock::time_point others_at_ = Clock::time_point::min();  // when a client without costly requests was last seen
  // While the limit is reached: what each client was served, divided by its weight.
  std::map<Client, double> served_;
  double least_served_ = 0;  // of the clients that did not get all they asked for; others are raised to it

  // Scratch of one step.
  AdapterCosts adapters_;
  std::vector<Costly> costly_;
  std::vector<Lane> lanes_;
  std::vector<Cost> costs_;
};

}  // namespace chorus
