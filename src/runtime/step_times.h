// Limits the context tokens of a step that several clients share, based on the times of earlier steps.
//
// All sequences of a step wait for its end: a thousand context tokens of one client delay the next token of every other
// client. So with several clients a step has about as many context tokens as take the time of the rest of the step, and
// at least one block. Tokens with log probabilities take longer than others, because each has a row of logits; they
// have a limit of their own. With a single client a step is as large as the scheduler's limits allow.
//
// The prices of runtime/costly_rows.h are measured here too.
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
  // KvSizes::attentionSize() of all generated rows, and of all contexts.
  double attention = 0;
  double context_attention = 0;
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
    if (work.context_tokens > kFew || work.scored_tokens > 0)
      ranContexts(work, time.count());
    else
      ranRows(work.reads + work.context_tokens / kRowsPerRead, work.attention + work.context_attention, time.count());
  }

  // Maximum context tokens of the next step. reads: of its generated rows.
  int32_t contextTokens(Clock::time_point now, double reads) const { return within(now, reads, token_); }
  // Maximum of those with log probabilities.
  int32_t scoredTokens(Clock::time_point now, double reads) const { return within(now, reads, scored_); }
  StepPrices prices() const {
    StepPrices prices;
    if (read_ <= 0) return prices;
    if (token_ > 0) prices.context = prices.scored = token_ / read_;
    if (scored_ > 0) prices.scored = scored_ / read_;
    prices.attention = attentionPrice(attention_, 1);
    // Tokens of a prompt are bound by arithmetic, and so is their attention.
    prices.context_attention = attentionPrice(context_attention_, prices.context * kRowsPerRead);
    return prices;
  }

 private:
  static constexpr int32_t kFew = 15;  // a step with at most this many context tokens counts as one without contexts
  static constexpr double kFewReads = 2;
  // Range of the prices of attention. Processors, formats and shapes of models differ by less, so a value beyond it is
  // an error of the measurement.
  static constexpr double kLeastPrice = 1.0 / 8, kMostPrice = 32;
  // Units of attention for each context token, which take at most about a fourth of the token's own time.
  static constexpr double kLittleAttention = 1.0 / 4 / kRowsPerRead;

  // seconds: measured, for a unit. otherwise: the price while it is not known.
  double attentionPrice(double seconds, double otherwise) const {
    return std::clamp(seconds > 0 ? seconds / read_ : otherwise, kLeastPrice, kMostPrice);
  }
  // A step without contexts, or with a few context tokens, which count as generated rows.
  void ranRows(double reads, double attention, double seconds) {
    const double of_attention = attention * prices().attention;  // in reads
    // How many rows take as long as a read differs, so the time of a read is measured in steps with few rows only.
    const bool few = reads <= kFewReads;
    if (read_ <= 0 || (few && of_attention <= reads / 8)) follow(read_, seconds / (reads + of_attention));
    read_ = std::min(read_, seconds);
    // The time that many rows take without attention is not known well, so a step with many rows measures the price of
    // attention only if attention takes most of the step.
    const double rest = seconds - read_ * reads;
    const bool mostly = few || attention >= 2 * reads || rest >= 3 * read_ * reads;
    if (attention >= reads / 2 && mostly && isEnough(rest, seconds)) follow(attention_, rest / attention);
    bound(attention_, attention, seconds);
  }
  void ranContexts(const StepWork& work, double seconds) {
    if (read_ <= 0) return;
    read_ = std::min(read_, seconds);
    bound(context_attention_, work.context_attention, seconds);
    const double of_contexts = seconds - read_ * (work.reads + work.attention * prices().attention);
    if (!isEnough(of_contexts, seconds)) return;
    // Steps with little attention measure the price of a token, those with much attention the price of attention.
    const double attention = work.context_attention / work.context_tokens;
    if (attention <= kLittleAttention || (token_ <= 0 && work.scored_tokens == 0)) return ranTokens(work, of_contexts);
    if (attention < 2 * kLittleAttention) return;
    const StepPrices known = prices();
    const int32_t others = work.context_tokens - work.scored_tokens;
    const double rest = of_contexts - read_ * (known.context * others + known.scored * work.scored_tokens);
    if (isEnough(rest, seconds)) follow(context_attention_, rest / work.context_attention);
  }
  void ranTokens(const StepWork& work, double seconds) {
    const int32_t others = work.context_tokens - work.scored_tokens;
    if (work.scored_tokens == 0) {
      follow(token_, seconds / others);
    } else if (2 * work.scored_tokens >= work.context_tokens) {
      follow(scored_, std::max(seconds - token_ * others, token_ * work.scored_tokens) / work.scored_tokens);
    }
  }
  // Attention takes less than its step, which also reads the weights. So a price that was measured too high, while
  // other programs ran, falls again even if no step with much attention follows.
  void bound(double& estimate, double attention, double seconds) const {
    if (attention > 0) estimate = std::min(estimate, (seconds - read_ / 2) / attention);
  }
  // Estimates of a small part of the time would be mostly errors of the estimate of the rest.
  static bool isEnough(double part, double seconds) { return part >= seconds / 4; }
  // The estimate goes down at once and up slowly, because other load on the machine makes single steps longer, never
  // shorter.
  static void follow(double& estimate, double seen) {
    estimate = estimate <= 0 || seen < estimate ? seen : estimate + (seen - estimate) / 16;
  }
  int32_t within(Clock::time_point now, double reads, double price) const {
    constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
    if (!isShared(now) || read_ <= 0) return kNoLimit;
    const double in_reads = price > 0 ? price / read_ : 1 / kRowsPerRead;
    return static_cast<int32_t>(std::min(reads / in_reads, double{kNoLimit}));
  }

  std::optional<Clock::time_point> shared_at_;
  // Seconds; 0: not known.
  double read_ = 0;
  double token_ = 0;   // of a context token without log probabilities
  double scored_ = 0;  // of one with log probabilities
  // Seconds of attention for each unit of KvSizes::attentionSize(), in generation and in context steps.
  double attention_ = 0;
  double context_attention_ = 0;
};

}  // namespace chorus
