#include "runtime/step_times.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

using Seconds = std::chrono::duration<double>;

TEST(StepTimes, ASharedStepHasAsManyContextTokensAsTakeTheTimeOfItsRest) {
  constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  EXPECT_EQ(times.contextTokens(now, 1), kNoLimit) << "nothing is known yet";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  EXPECT_EQ(times.contextTokens(now, 1), kRowsPerRead) << "as many as rows of generation that take this time";
  times.ran({.generated_rows = 1, .context_tokens = 1000}, Seconds(0.110));
  EXPECT_NEAR(times.contextTokens(now, 1), 100, 1);
  EXPECT_NEAR(times.contextTokens(now, 33), 300, 1) << "a step with more rows takes longer anyway";
  EXPECT_NEAR(times.contextTokens(now + StepTimes::kAlone, 1), 100, 1);
  const auto alone = now + StepTimes::kAlone + std::chrono::seconds(1);
  EXPECT_FALSE(times.isShared(alone));
  EXPECT_EQ(times.contextTokens(alone, 1), kNoLimit);
  times.shared(now + std::chrono::minutes(1));
  EXPECT_NEAR(times.contextTokens(now + std::chrono::minutes(1), 1), 100, 1);
}

TEST(StepTimes, AStepThatWasHeldUpCountsLittle) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  times.ran({.context_tokens = 1}, Seconds(0.010));
  times.ran({.generated_rows = 1, .context_tokens = 1000}, Seconds(0.110));
  times.ran({.generated_rows = 1, .context_tokens = 1000}, Seconds(1.010));
  EXPECT_GT(times.contextTokens(now, 1), 60);
  for (int i = 0; i < 200; ++i) times.ran({.generated_rows = 1, .context_tokens = 1000}, Seconds(1.010));
  EXPECT_NEAR(times.contextTokens(now, 1), 10, 1) << "contexts take longer for good";
}

TEST(StepTimes, TokensWithLogProbabilitiesHaveAPriceOfTheirOwn) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  EXPECT_EQ(times.prices().scored, 1 / kRowsPerRead) << "nothing is known yet";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  times.ran({.generated_rows = 1, .context_tokens = 100}, Seconds(0.020));
  times.ran({.generated_rows = 1, .context_tokens = 150, .scored_tokens = 100}, Seconds(0.515));
  EXPECT_NEAR(times.scoredTokens(now, 1), 2, 0.1) << "each takes 5 ms";
  EXPECT_NEAR(times.prices().scored, 0.5, 0.01);
  EXPECT_NEAR(times.contextTokens(now, 1), 100, 1);
  times.ran({.generated_rows = 1, .context_tokens = 8, .scored_tokens = 8}, Seconds(0.012));
  times.ran({.generated_rows = 113, .context_tokens = 100, .scored_tokens = 8}, Seconds(0.079));
  EXPECT_NEAR(times.prices().scored, 0.5, 0.01) << "a small part of a step says little about its price";
  times.ran({.generated_rows = 1, .context_tokens = 1000, .scored_tokens = 10}, Seconds(0.510));
  EXPECT_NEAR(times.prices().scored, 0.5, 0.01) << "the time may be that of the others";
  times.ran({.generated_rows = 1, .context_tokens = 100, .scored_tokens = 100}, Seconds(0.014));
  EXPECT_NEAR(times.prices().scored, 0.01, 0.001) << "it takes at least as long as one without";
}

TEST(StepTimes, ALargeStepDoesNotChangeWhatAReadTakes) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  times.ran({.generated_rows = 1}, Seconds(0.010));
  // Here 64 rows take 1.5 reads, not 4.9, and contexts seem to take no time at all.
  times.ran({.generated_rows = 64}, Seconds(0.015));
  times.ran({.generated_rows = 64, .context_tokens = 100}, Seconds(0.020));
  times.ran({.generated_rows = 1, .context_tokens = 100}, Seconds(0.020));
  EXPECT_NEAR(times.contextTokens(now, 1), 100, 1);
  EXPECT_NEAR(times.prices().context, 0.01, 0.001);
}

TEST(StepTimes, NoStepIsShorterThanARead) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  times.ran({.generated_rows = 1}, Seconds(1.0));  // the machine was busy
  times.ran({.generated_rows = 64}, Seconds(0.050));
  times.ran({.generated_rows = 1, .context_tokens = 100}, Seconds(0.150));
  EXPECT_NEAR(times.contextTokens(now, 1), 50, 1);
}

TEST(StepTimes, AttentionHasAPrice) {
  StepTimes times;
  EXPECT_EQ(times.prices().attention, 1) << "nothing is known yet";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  times.ran({.generated_rows = 1, .attention = 4}, Seconds(0.110));
  times.ran({.generated_rows = 1, .attention = 4}, Seconds(0.090));
  EXPECT_NEAR(times.prices().attention, 2, 0.01);
  times.ran({.generated_rows = 64, .attention = 4}, Seconds(0.150));
  EXPECT_NEAR(times.prices().attention, 2, 0.01) << "the time may be that of the many rows";
  times.ran({.generated_rows = 1, .attention = 0.1}, Seconds(0.020));
  EXPECT_NEAR(times.prices().attention, 2, 0.01) << "a small part of a step says little about its price";
  times.ran({.generated_rows = 64, .attention = 64}, Seconds(0.010 * (readsOf(64) + 0.5 * 64)));
  EXPECT_NEAR(times.prices().attention, 0.5, 0.01) << "here most of the time is that of attention";
  times.ran({.generated_rows = 1, .attention = 4}, Seconds(0.0111));
  EXPECT_NEAR(times.prices().attention, 0.1525, 0.01) << "it is at most what is left of the time without half a read";
  for (int i = 0; i < 200; ++i) times.ran({.generated_rows = 1, .attention = 4}, Seconds(10));
  EXPECT_EQ(times.prices().attention, 32) << "no machine is so slow";
}

TEST(StepTimes, ManyRowsAlsoShowAPriceThatTakesMostOfTheTime) {
  StepTimes times;
  times.ran({.generated_rows = 1}, Seconds(0.010));
  // The limits keep the attention of a step at about its reads, as long as its price is believed to be 1.
  for (int i = 0; i < 200; ++i) {
    times.ran({.generated_rows = 40, .attention = readsOf(40)}, Seconds(0.010 * readsOf(40) * (1 + 5)));
  }
  EXPECT_NEAR(times.prices().attention, 5, 0.1);
}

TEST(StepTimes, APriceThatWasMeasuredOnABusyMachineFallsAgain) {
  StepTimes times;
  times.ran({.generated_rows = 1}, Seconds(0.010));
  times.ran({.generated_rows = 1, .attention = 1}, Seconds(0.330));
  EXPECT_NEAR(times.prices().attention, 32, 0.1);
  times.ran({.generated_rows = 8, .attention = 0.4}, Seconds(0.015));
  EXPECT_NEAR(times.prices().attention, 2.5, 0.1);
}

TEST(StepTimes, TheFirstStepsMayHaveLongContexts) {
  StepTimes times;
  times.ran({.generated_rows = 1, .attention = 4}, Seconds(0.090));
  EXPECT_EQ(times.prices().attention, 1) << "nothing says which of both takes the time";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  EXPECT_NEAR(times.prices().attention, 1.8, 0.01);
  for (int i = 0; i < 200; ++i) times.ran({.generated_rows = 1, .attention = 4}, Seconds(0.090));
  EXPECT_NEAR(times.prices().attention, 2, 0.01);
}

TEST(StepTimes, AttentionOfContextsHasAPriceOfItsOwn) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  EXPECT_EQ(times.prices().context_attention, 1) << "nothing is known yet";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  times.ran({.generated_rows = 1, .context_attention = 1, .context_tokens = 100}, Seconds(0.030));
  EXPECT_NEAR(times.contextTokens(now, 1), 50, 1);
  EXPECT_NEAR(times.prices().context_attention, 0.02 * kRowsPerRead, 0.01) << "in proportion to that of a token";
  // The first chunks of a long prompt, then a short one.
  for (const double attention : {70, 126, 210}) {
    const double seconds = 0.010 * (1 + 2048 * 0.02 + attention * 8);
    times.ran({.generated_rows = 1, .context_attention = attention, .context_tokens = 2048}, Seconds(seconds));
  }
  EXPECT_NEAR(times.prices().context_attention, 8, 0.1);
  times.ran({.generated_rows = 1, .context_attention = 12, .context_tokens = 16},
            Seconds(0.010 * (1 + 16 * 0.02 + 12 * 7)));
  EXPECT_NEAR(times.prices().context_attention, 7, 0.1);
  EXPECT_EQ(times.prices().attention, 1);
  EXPECT_NEAR(times.contextTokens(now, 1), 50, 1) << "the tokens themselves take as long as before";
}

TEST(StepTimes, AReadIsNotMeasuredByLongContexts) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  times.ran({.generated_rows = 1}, Seconds(0.010));
  times.ran({.generated_rows = 1, .context_tokens = 100}, Seconds(0.020));
  for (int i = 0; i < 100; ++i) times.ran({.generated_rows = 1, .attention = 0.5}, Seconds(0.014));
  EXPECT_NEAR(times.contextTokens(now, 1), 100, 1);
}

TEST(StepTimes, ARowHasAPrice) {
  constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  EXPECT_EQ(times.prices().row, 1 / kRowsPerRead) << "nothing is known yet";
  times.ran({.generated_rows = 16}, Seconds(0.060));
  EXPECT_NEAR(times.prices().row, 1 / kRowsPerRead, 1e-6) << "nothing says how long one row takes";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  const auto ranMany = [&](double seconds) {
    for (int i = 0; i < 200; ++i) {
      times.ran({.generated_rows = 1}, Seconds(0.010));
      times.ran({.generated_rows = 16}, Seconds(seconds));
    }
  };
  ranMany(0.060);
  EXPECT_NEAR(times.prices().row, 1.0 / 3, 0.01);
  times.ran({.generated_rows = 16, .context_tokens = 8}, Seconds(0.065));
  times.ran({.generated_rows = 16, .adapters = 4}, Seconds(0.065));
  times.ran({.generated_rows = 16, .attention = 4}, Seconds(0.065));
  EXPECT_NEAR(times.prices().row, 1.0 / 3, 0.01) << "the time may be that of something else";
  times.ran({.generated_rows = 1, .context_tokens = 100}, Seconds(0.040));
  EXPECT_NEAR(times.contextTokens(now, 16), 200, 3) << "as many as take as long as 16 rows";
  ranMany(10);
  EXPECT_EQ(times.prices().row, 1) << "a row beside others takes no longer than one alone";
  EXPECT_EQ(times.generatedRows(now, 5), 6) << "one of each client in any case";
  times.ran({.generated_rows = 16}, Seconds(0.010));
  EXPECT_EQ(times.prices().row, 1.0 / 64);
  EXPECT_EQ(times.generatedRows(now + std::chrono::minutes(1), 1), kNoLimit) << "there is a single client";
}

TEST(StepTimes, ASharedStepTakesAsManyReadsAsThereAreClientsAndOneMore) {
  constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  EXPECT_EQ(times.generatedRows(now, 2), kNoLimit) << "nothing is known yet";
  times.ran({.generated_rows = 1}, Seconds(0.010));
  EXPECT_EQ(times.generatedRows(now, 2), kNoLimit);
  times.ran({.generated_rows = 16}, Seconds(0.0475));  // a row takes a fourth of a read
  EXPECT_EQ(times.generatedRows(now, 2), 1 + 2 * 4);
  EXPECT_EQ(times.generatedRows(now, 7), 1 + 7 * 4);
  EXPECT_EQ(times.generatedRows(now, 1), 1 + 2 * 4) << "another one is expected to come back";
}

TEST(StepTimes, AStepThatNobodyNoticesHasManyRows) {
  StepTimes times;
  const auto now = StepTimes::Clock::now();
  times.shared(now);
  times.ran({.generated_rows = 1}, Seconds(0.00025));
  times.ran({.generated_rows = 9}, Seconds(0.00125));  // half a read each
  EXPECT_EQ(times.generatedRows(now, 2), 1 + 7 * 2) << "they take two milliseconds";
}

}  // namespace
}  // namespace chorus
