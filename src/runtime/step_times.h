// Limits the context tokens of a step that several clients share, based on the times of earlier steps.
//
// All sequences of a step wait for its end: a thousand context tokens of one client delay the next token of every other
// client. So with several clients a step has about as many context tokens as take the time of the rest of the step, and
// at least one block. With a single client a step is as large as the scheduler's limits allow.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace chorus {

// Not thread-safe.
class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;
  // The limit applies until there has been a single client for this long, because a client that comes and goes is
  // expected to come back.
  static constexpr std::chrono::seconds kAlone{10};

  // Records that there are several clients.
  void shared(Clock::time_point now) { shared_at_ = now; }
  // Records the time of a step with this many context tokens.
  void ran(int32_t context_tokens, std::chrono::duration<double> time) {
    if (context_tokens <= kFew) {
      follow(rest_, time.count());
    } else if (rest_ > 0) {
      follow(token_, std::max(time.count() - rest_, 0.0) / context_tokens);
    }
  }
  // Maximum context tokens of the next step.
  int32_t contextTokens(Clock::time_point now) const {
    constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
    if (!shared_at_ || now - *shared_at_ > kAlone || rest_ <= 0 || token_ <= 0) return kNoLimit;
    return static_cast<int32_t>(std::min(rest_ / token_, double{kNoLimit}));
  }

 private:
  static constexpr int32_t kFew = 16;  // a step with at most this many context tokens counts as one without contexts
  // The estimate goes down at once and up slowly, because other load on the machine makes single steps longer, never
  // shorter.
  static void follow(double& estimate, double seen) {
    estimate = estimate <= 0 || seen < estimate ? seen : estimate + (seen - estimate) / 16;
  }

  std::optional<Clock::time_point> shared_at_;
  double rest_ = 0;   // seconds of a step without contexts; 0: not known
  double token_ = 0;  // seconds per context token; 0: not known
};

}  // namespace chorus
