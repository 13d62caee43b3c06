// Limits the context tokens of a step that several clients share, based on the times of earlier steps.
//
// All sequences of a step wait for its end: a thousand context tokens of one client delay the next token of every other
// client. So with several clients a step has about as many context tokens as take the time of the rest of the step, and
// at least one block. Tokens with log probabilities take longer than others, because each has a row of logits; they
// have a limit of their own. With a single client a step is as large as the scheduler's limits allow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "runtime/step_costs.h"

namespace chorus {

// The amounts of work of a step, from which StepTimes estimates the time of each kind.
struct StepWork {
  // Reads of the generated rows, at least 1, and of all adapters (runtime/step_costs.h).
  double reads = 0;
  int32_t context_tokens = 0;
  int32_t scored_tokens = 0;  // of context_tokens, those with log probabilities
};

// Not thread-safe.
class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;
  // The limits apply until there has been a single client for this long, because a client that comes and goes is
  // expected to come back.
  static constexpr std::chrono::seconds kAlone{10};

  // Records that there are several clients.
  void shared(Clock::time_point now) { shared_at_ = now; }
  bool isShared(Clock::time_point now) const { return shared_at_ && now - *shared_at_ <= kAlone; }
  // Records the time of a step, from the begin of the network to the end of the sampler.
  void ran(const StepWork& work, std::chrono::duration<double> time) {
    const bool has_contexts = work.context_tokens > kFew || work.scored_tokens > 0;
    const double reads = work.reads + (has_contexts ? 0 : work.context_tokens / kRowsPerRead);
    // How many rows take as long as a read differs, so only steps with few rows say what a read takes.
    if (!has_contexts && (read_ <= 0 || reads <= kFewReads)) follow(read_, time.count() / reads);
    if (read_ > 0) read_ = std::min(read_, time.count());
    // Estimates of a small part of the time would be mostly errors of the estimate of the rest.
    const double of_contexts = time.count() - read_ * work.reads;
    if (!has_contexts || read_ <= 0 || of_contexts < time.count() / 4) return;
    if (work.scored_tokens == 0) {
      follow(token_, of_contexts / work.context_tokens);
    } else if (2 * work.scored_tokens >= work.context_tokens) {
      const double of_others = token_ * (work.context_tokens - work.scored_tokens);
      follow(scored_, std::max(of_contexts - of_others, token_ * work.scored_tokens) / work.scored_tokens);
    }
  }

  // Maximum context tokens of the next step. reads: of its generated rows.
  int32_t contextTokens(Clock::time_point now, double reads) const { return within(now, reads, token_); }
  // Maximum of those with log probabilities.
  int32_t scoredTokens(Clock::time_point now, double reads) const { return within(now, reads, scored_); }
  TokenPrices prices() const {
    TokenPrices prices;
    if (read_ > 0 && token_ > 0) prices.context = prices.scored = token_ / read_;
    if (read_ > 0 && scored_ > 0) prices.scored = scored_ / read_;
    return prices;
  }

 private:
  static constexpr int32_t kFew = 16;  // a step with at most this many context tokens counts as one without contexts
  static constexpr double kFewReads = 2;
  // The estimate goes down at once and up slowly, because other load on the machine makes single steps longer, never
  // shorter.
  static void follow(double& estimate, double seen) {
    estimate = estimate <= 0 || seen < estimate ? seen : estimate + (seen - estimate) / 16;
  }
  int32_t within(Clock::time_point now, double reads, double price) const {
    constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
    if (!isShared(now) || read_ <= 0 || price <= 0) return kNoLimit;
    return static_cast<int32_t>(std::min(read_ * reads / price, double{kNoLimit}));
  }

  std::optional<Clock::time_point> shared_at_;
  // Seconds; 0: not known.
  double read_ = 0;
  double token_ = 0;   // of a context token without log probabilities
  double scored_ = 0;  // of one with log probabilities
};

}  // namespace chorus
