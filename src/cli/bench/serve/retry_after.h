// Computes how long a refused request waits before its next try.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cli/bench/serve/http_client.h"

namespace chorus {

constexpr std::chrono::milliseconds kLongestRetryWait{60'000};

// The wait that the response names: "retry-after-ms" (milliseconds, as OpenAI's clients read it), or else "retry-after"
// (RFC 9110, section 10.2.3: whole seconds, or a date, which is compared with `now`). From 0 to kLongestRetryWait;
// nullopt when neither header is there or can be read.
std::optional<std::chrono::milliseconds> retryAfter(const HttpHeaders& headers,
                                                    std::chrono::system_clock::time_point now);

// The wait before a request's next try: `named`, or without it 500 ms that double with each of the `earlier` tries up
// to 8 s; then longer by up to its own length, so that requests that were refused together do not return together.
// `unit`, from 0 to 1, is the share of that.
std::chrono::milliseconds retryWait(std::optional<std::chrono::milliseconds> named, int64_t earlier, double unit);

}  // namespace chorus
