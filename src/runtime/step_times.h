// Limits the rows of a step that several clients share, based on the times of earlier steps.
//
// All sequences of a step wait for its end: a thousand context tokens of one client delay the next token of every other
// client. So with several clients a step has about as many context tokens as take the time of the rest of the step, and
// at least one block. Tokens with log probabilities take longer than others, because each has a row of logits; they
// have a limit of their own. With a single client a step is as large as the scheduler's limits allow.
//
// The generated rows of such a step are limited too, see runtime/row_shares.h. The prices of runtime/costly_rows.h are
// measured here.
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
  int32_t generated_rows = 0;
  double adapters = 0;  // reads of all adapters (runtime/step_costs.h)
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
      ranRows(work, time.count());
  }

  // Maximum context tokens of the next step with so many generated rows.
  int32_t contextTokens(Clock::time_point now, int64_t rows) const { return within(now, rows, token_); }
  // Maximum of those with log probabilities.
  int32_t scoredTokens(Clock::time_point now, int64_t rows) const { return within(now, rows, scored_); }
  // Maximum generated rows of the next step, if so many clients have requests: at least one for each of them.
  int32_t generatedRows(Clock::time_point now, size_t num_clients) const {
    if (!isShared(now) || row_ <= 0) return kNoLimit;
    const double reads = std::max(static_cast<double>(num_clients + 1), kRowsReads);
    const double further = std::max(reads - 1, kShortStep / read_ - 1) / prices().row;
    return static_cast<int32_t>(std::min(1 + further, double{kNoLimit}));
  }
  StepPrices prices() const {
    StepPrices prices;
    if (read_ <= 0) return prices;
    if (row_ > 0) prices.row = std::min(row_ / read_, 1.0);
    if (token_ > 0) prices.context = prices.scored = token_ / read_;
    if (scored_ > 0) prices.scored = scored_ / read_;
    prices.attention = attentionPrice(attention_, 1);
    // Tokens of a prompt are bound by arithmetic, and so is their attention.
    prices.context_attention = attentionPrice(context_attention_, prices.context * kRowsPerRead);
    return prices;
  }

 private:
  static constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  // The generated rows of a shared step may take as many reads as there are clients, and one more; and always this
  // many.
  static constexpr double kRowsReads = 3;
  static constexpr double kShortStep = 0.002;         // seconds; no client notices a step that takes less
  static constexpr double kLeastRowPrice = 1.0 / 64;  // a lower one would be an error of the measurement
  static constexpr int32_t kFewRows = 4;              // they take little longer than one
  static constexpr int32_t kFew = 15;  // a step with at most this many context tokens counts as one without contexts
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
  void ranRows(const StepWork& work, double seconds) {
    const StepPrices known = prices();
    const int32_t rows = work.generated_rows + work.context_tokens;
    const double attention = work.attention + work.context_attention;
    const double of_attention = attention * known.attention;                     // in reads
    const double reads = readsOf(std::max(rows, 1), known.row) + work.adapters;  // of all else
    // How many rows take as long as a read differs, so the time of a read is measured in steps with few rows only, and
    // that of a further row in steps with more.
    const bool few = rows <= kFewRows && work.adapters <= 1;
    if (read_ <= 0 || (few && of_attention <= reads / 8)) follow(read_, seconds / (reads + of_attention));
    read_ = std::min(read_, seconds);
    const double others = work.adapters + of_attention;
    if (rows > kFewRows && work.context_tokens == 0 && others <= reads / 8)
      follow(row_, std::max((seconds - read_ * (1 + others)) / (rows - 1), read_ * kLeastRowPrice));
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
    const StepPrices known = prices();
    const double of_rows = readsOf(std::max(work.generated_rows, 1), known.row) + work.adapters;
    const double of_contexts = seconds - read_ * (of_rows + work.attention * known.attention);
    if (!isEnough(of_contexts, seconds)) return;
    // Steps with little attention measure the price of a token, those with much attention the price of attention.
    const double attention = work.context_attention / work.context_tokens;
    if (attention <= kLittleAttention || (token_ <= 0 && work.scored_tokens == 0)) return ranTokens(work, of_contexts);
    if (attention < 2 * kLittleAttention) return;
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
  int32_t within(Clock::time_point now, int64_t rows, double price) const {
    if (!isShared(now) || read_ <= 0) return kNoLimit;
    const double reads = readsOf(std::max<int64_t>(rows, 1), prices().row);
    const double in_reads = price > 0 ? price / read_ : 1 / kRowsPerRead;
    return static_cast<int32_t>(std::min(reads / in_reads, double{kNoLimit}));
  }

  std::optional<Clock::time_point> shared_at_;
  // Seconds; 0: not known.
  double read_ = 0;
  double row_ = 0;     // of a generated row beside the first one
  double token_ = 0;   // of a context token without log probabilities
  double scored_ = 0;  // of one with log probabilities
  // Seconds of attention for each unit of KvSizes::attentionSize(), in generation and in context steps.
  double attention_ = 0;
  double context_attention_ = 0;
};

}  // namespace chorus
