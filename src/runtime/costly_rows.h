// Limits what costly rows add to steps that several clients share.
//
// All sequences of a step wait for its end. A row with large adapters, or with a composition of many, takes as long as
// many rows of the base model, and so does a row of a prompt with log probabilities if the vocabulary is large. So with
// several clients the costly rows of all clients together take, on average, at most as long as the rest of the steps.
// If the rows of one step take longer, later steps have fewer of them until that is made up for. A sequence without a
// row in a step keeps its slot and its blocks.
//
// The clients with costly rows divide this time max-min fairly, by their weights: the next row goes to the client that
// was served the least, as in FairQueue with weighted fairness. A client that begins counts as one that was served as
// much as the least served one.
//
// Clients who want the same have no reason to wait for each other. So the limit is at least what all of them would take
// if each took as much as the one that asks for the least.
#pragma once

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
  // What a planned sequence costs beside its rows of the base model.
  struct Cost {
    double adapters = 0;
    double scored = 0;
    double total() const { return adapters + scored; }
  };
  // Clients without costly requests are remembered if they were served more than others. Beyond this number of them,
  // all of them are forgotten.
  static constexpr size_t kMostAbsent = 1024;

  // Begins a step. Sets RequestView::skipped of the requests that get no rows in it. scored_token: cost of a token of a
  // prompt with log probabilities. turn: step number; in every other step a client's waiting requests come before its
  // running ones. at_least_one: one costly request may run whatever is owed, because no other request can. Returns the
  // reads that the generated rows of the step take without their adapters.
  double limit(std::span<RequestView> requests, double scored_token, uint64_t turn, bool at_least_one);
  // Begins a step without limits and forgets what was served. Returns the same.
  double skipLimits(std::span<const RequestView> requests);

  // Counts what the planned step costs. Returns the cost of each of plan.sequences, until the next call.
  std::span<const Cost> count(std::span<const RequestView> requests, const SchedulerPlan& plan,
                              double scored_token) noexcept;

 private:
  using Client = std::optional<uint64_t>;
  struct Costly {
    RequestView* request = nullptr;
    double cost = 0;  // expected
  };
  // The costly requests of one client, a range of costly_.
  struct Lane {
    Client client;
    size_t next = 0, end = 0;
    double demand = 0;  // cost of all of them
    double served = 0;  // in its life and in the plan so far, divided by the client's weight
  };

  void reserve(size_t requests);
  void settle() noexcept;
  void collect(std::span<RequestView> requests, double scored_token, uint64_t turn);
  void makeLanes();
  const Lane* laneOf(const Client& client) const;
  double sharedDemand(std::span<const RequestView> requests) const;
  void forgetAbsent();

  double owed_ = 0;   // what earlier steps took beyond their limits
  double spent_ = 0;  // in the latest step
  int64_t rows_ = 0;  // of the latest step
  double least_limit_ = 0;
  std::map<Client, double> served_;  // divided by the client's weight
  double least_served_ = 0;          // of the clients with costly requests

  // Scratch of one step.
  AdapterCosts adapters_;
  std::vector<Costly> costly_;
  std::vector<Lane> lanes_;
  std::vector<Cost> costs_;
};

}  // namespace chorus
