// Counters and histograms of generation requests, filled by RequestRecord. Thread-safe, without locks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "server/metrics/atomic_histogram.h"

namespace chorus::server {

// How the answer of a choice ended.
enum class Outcome : uint8_t {
  kStop,    // end token, stop string or stop token
  kLength,  // the most tokens that were asked for or fit
  kAbort,   // the client disconnected
  kError,   // it failed after it was accepted
};
inline constexpr std::array<std::string_view, 4> kOutcomes = {"stop", "length", "abort", "error"};

// The bounds are vLLM's, so that its dashboards fit.
inline constexpr double kFirstTokenBounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                               1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
inline constexpr double kTokenBounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
inline constexpr double kRequestBounds[] = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                            30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
inline constexpr double kLengthBounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                           500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

// Counters of the requests for one model name.
struct ModelCounters {
  std::array<std::atomic<uint64_t>, kOutcomes.size()> choices{};  // by Outcome
  std::atomic<uint64_t> prompt_tokens{0}, generation_tokens{0};
  AtomicHistogram first_token{kFirstTokenBounds};
};

// Over all models.
struct RequestCounters {
  ModelCounters all;
  AtomicHistogram inter_token{kTokenBounds}, token_of_choice{kTokenBounds};
  AtomicHistogram whole{kRequestBounds}, queue{kRequestBounds}, prefill{kRequestBounds}, decode{kRequestBounds},
      inference{kRequestBounds};
  AtomicHistogram prompt_length{kLengthBounds}, generation_length{kLengthBounds}, max_generation_length{kLengthBounds};
};

}  // namespace chorus::server
