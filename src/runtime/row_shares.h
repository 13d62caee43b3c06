// Limits the generated rows of a step that several clients share, and divides them between the clients.
//
// All sequences of a step wait for its end. Further rows use the weights that the first one reads, so on most
// processors they take little time. But where products are slow compared to memory, or if the model fits into the
// processor's cache, 16 choices of one client make every step several times as long. So with several clients the
// generated rows of a step take at most as many reads (runtime/step_costs.h) as StepTimes::generatedRows() says. The
// limit is at least the number of clients times the smallest number of sequences that one of them had in the last
// kAway, because clients with equally many slow each other equally.
//
// The clients divide the rows max-min fairly by their weights (runtime/client_credits.h), and each client's sequences
// take turns. A sequence without a row in a step keeps its slot and blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/client_credits.h"
#include "runtime/scheduler.h"
#include "runtime/step_times.h"

namespace chorus {

// Not thread-safe. Reuses its memory.
class RowShares {
 public:
  using Clock = std::chrono::steady_clock;
  // After a client with few sequences has left, it is expected to come back within this time.
  static constexpr auto kAway = StepTimes::kAlone;

  // Begins a step: returns how many generated rows it may have. rows: how many it may have in any case.
  int64_t begin(std::span<RequestView> requests, int64_t rows, Clock::time_point now);
  // If more than `rows` requests generate and are not skipped, sets RequestView::skipped of all but so many of them.
  // turn: number of the step.
  void limit(std::span<RequestView> requests, int64_t rows, uint64_t turn);

 private:
  struct Sequence {
    RequestView* view = nullptr;
    size_t position = 0;  // in its lane, from an element on that changes from step to step
  };
  // The sequences of a client, as a range of sequences_. The first ones generate, in the order in which they get rows.
  struct Lane {
    size_t begin = 0, generating_end = 0, end = 0;
    size_t next = 0;    // the one that gets the next row
    bool met = false;   // ClientCredits::Member::met
    double credit = 0;  // ClientCredits::Member::credit, less the rows it got in this step
  };
  void makeLanes(std::span<RequestView> requests);
  int64_t sharedRows(Clock::time_point now);
  void divide(int64_t rows, uint64_t turn);
  int32_t weightOf(const Lane& lane) const { return sequences_[lane.begin].view->weight; }

  ClientCredits credits_;  // in rows
  // sharedRows(), and when it was last as small.
  int64_t shared_rows_ = 0;
  std::optional<Clock::time_point> shared_rows_at_;
  // Scratch of one step.
  std::vector<Sequence> sequences_;
  std::vector<ClientCredits::Member> members_;
  std::vector<Lane> lanes_;
};

}  // namespace chorus
