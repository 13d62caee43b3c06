// libFuzzer's entry point for every target; it also limits the time and memory of an input. An input that seems too
// expensive is run up to five times and judged by its cheapest run, because one-time initialisation and other programs'
// use of the caches are not the input's cost.
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
// Sanitizers and coverage slow a program down by about this factor.
#ifdef CHORUS_SANITIZED
constexpr double kSlowdown = 25;
#else
constexpr double kSlowdown = 1;
#endif

FixedCost g_dearest;
int64_t g_allowed_bytes = 0;  // of the current input

// Processor time of all threads, because a target may use several.
double processorMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// Cost of one run beyond the share of the input's bytes.
FixedCost costOf(const uint8_t* data, size_t size) {
  g_allowed_bytes = 0;
  const AllocationWatch watch;
  const double begin = processorMicroseconds();
  fuzzOne(data, size);
  const double took = (processorMicroseconds() - begin) / kSlowdown;
  return {took - kMicrosecondsForEachByte * static_cast<double>(size),
          watch.peakBytes() - kBytesForEachByte * static_cast<int64_t>(size) - g_allowed_bytes};
}

}  // namespace

FixedCost dearestInput() { return g_dearest; }

void allowBytes(int64_t bytes) { g_allowed_bytes = bytes; }

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
