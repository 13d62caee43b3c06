// How long contexts may make a step that several clients share, told by what earlier steps took.
//
// A step is as long as its longest part: a thousand tokens of one client's context hold up every other client's next
// token. So where clients share, a step has as many tokens of contexts as take about the time of the rest of it, and at
// least a block. One client alone has steps as large as the limits allow.
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
  // Clients share from the moment two are there until one has been alone for so long: one that comes again and again
  // is expected.
  static constexpr std::chrono::seconds kAlone{10};

  void shared(Clock::time_point now) { shared_at_ = now; }
  // A step of these tokens took so long.
  void ran(int32_t context_tokens, std::chrono::duration<double> time) {
    if (context_tokens <= kFew) {
      follow(rest_, time.count());
    } else if (rest_ > 0) {
      follow(token_, std::max(time.count() - rest_, 0.0) / context_tokens);
    }
  }
  // For the next step: at most so many tokens of contexts.
  int32_t contextTokens(Clock::time_point now) const {
    constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
    if (!shared_at_ || now - *shared_at_ > kAlone || rest_ <= 0 || token_ <= 0) return kNoLimit;
    return static_cast<int32_t>(std::min(rest_ / token_, double{kNoLimit}));
  }

 private:
  static constexpr int32_t kFew = 16;  // tokens whose time is that of a step without contexts
  // Down at once, up slowly: what else runs on the machine makes single steps longer, none shorter.
  static void follow(double& estimate, double seen) {
    estimate = estimate <= 0 || seen < estimate ? seen : estimate + (seen - estimate) / 16;
  }

  std::optional<Clock::time_point> shared_at_;
  double rest_ = 0;   // seconds of a step with few tokens of contexts; 0: not known
  double token_ = 0;  // and of each further token
};

}  // namespace chorus
