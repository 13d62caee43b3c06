// libFuzzer's entry point for every target: time and memory are oracles too. An input that seems too dear is run again,
// up to five times in all, and counts by its cheapest run: what a first run initialises and what other programs do to
// the caches is not the input's.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "fuzz/fuzz_target.h"
#include "support/malloc_hook.h"

namespace chorus::test {
namespace {

constexpr double kMicrosecondsForEachByte = 1;
constexpr int64_t kBytesForEachByte = 64;
constexpr int kMostRuns = 5;
// Sanitizers and coverage make a program slower by about as much.
#ifdef CHORUS_SANITIZED
constexpr double kSlowdown = 25;
#else
constexpr double kSlowdown = 1;
#endif

FixedCost g_dearest;

// Processor time of all threads: a target may hand its input to others.
double processorMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// What one run costs beyond the share of the input's bytes.
FixedCost costOf(const uint8_t* data, size_t size) {
  const AllocationWatch watch;
  const double begin = processorMicroseconds();
  fuzzOne(data, size);
  const double took = (processorMicroseconds() - begin) / kSlowdown;
  return {took - kMicrosecondsForEachByte * static_cast<double>(size),
          watch.peakBytes() - kBytesForEachByte * static_cast<int64_t>(size)};
}

}  // namespace

FixedCost dearestInput() { return g_dearest; }

void checkCost(const uint8_t* data, size_t size) {
  FixedCost cost = costOf(data, size);
  for (int run = 1; run < kMostRuns; ++run) {
    if (cost.microseconds <= kFixedCost.microseconds && cost.bytes <= kFixedCost.bytes) break;
    const FixedCost again = costOf(data, size);
    cost = {std::min(cost.microseconds, again.microseconds), std::min(cost.bytes, again.bytes)};
  }
  g_dearest = {std::max(g_dearest.microseconds, cost.microseconds), std::max(g_dearest.bytes, cost.bytes)};
  if (cost.microseconds <= kFixedCost.microseconds && cost.bytes <= kFixedCost.bytes) return;
  std::fprintf(
      stderr,
      "an input of %zu bytes costs %.0f us and %lld bytes of memory beyond the share of its bytes; at most %.0f "
      "us and %lld bytes are allowed\n",
      size, cost.microseconds, static_cast<long long>(cost.bytes), kFixedCost.microseconds,
      static_cast<long long>(kFixedCost.bytes));
  std::abort();
}

}  // namespace chorus::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chorus::test::checkCost(data, size);
  return 0;
}
