#include "cli/bench/serve/retry_after.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// 1994-11-06 08:49:37 UTC, the date of RFC 9110's examples.
const system_clock::time_point kNow = system_clock::from_time_t(784111777);

std::optional<int64_t> named(const HttpHeaders& headers) {
  const auto wait = retryAfter(headers, kNow);
  return wait ? std::make_optional<int64_t>(wait->count()) : std::nullopt;
}

TEST(RetryAfterTest, MillisecondsGoBeforeSeconds) {
  EXPECT_EQ(named({{"retry-after", "3"}, {"retry-after-ms", "250.5"}}), 250);
  EXPECT_EQ(named({{"retry-after", "3"}}), 3000);
  EXPECT_EQ(named({{"retry-after", "0"}}), 0);
  EXPECT_EQ(named({{"x-retry", "1"}}), std::nullopt);
  EXPECT_EQ(named({{"retry-after", "2"}, {"retry-after-ms", "soon"}}), 2000);
}

TEST(RetryAfterTest, Dates) {
  EXPECT_EQ(named({{"retry-after", "Sun, 06 Nov 1994 08:49:42 GMT"}}), 5000);
  EXPECT_EQ(named({{"retry-after", "Sun, 06 Nov 1994 08:49:30 GMT"}}), 0) << "a time that has passed";
}

TEST(RetryAfterTest, WaitsAreBoundedAndNonsenseIsNone) {
  for (const char* long_wait : {"61", "86400", "99999999999999999999999999"}) {
    EXPECT_EQ(named({{"retry-after", long_wait}}), kLongestRetryWait.count()) << long_wait;
  }
  for (const char* bad : {"", "-1", "nan", "inf", "1 s", " 1", "0x10", "Sun, 06 Nov 1994 08:49:42 CET",
                          "Sun, 06 Nov 1994 08:49:42 GMT+1", "yesterday"}) {
    EXPECT_EQ(named({{"retry-after", bad}, {"retry-after-ms", bad}}), std::nullopt) << bad;
  }
}

TEST(RetryAfterTest, TheNextTryIsNeverBeforeTheNamedTime) {
  EXPECT_EQ(retryWait(milliseconds(300), 7, 0.0), milliseconds(300));
  EXPECT_EQ(retryWait(milliseconds(300), 0, 0.5), milliseconds(450));
  EXPECT_EQ(retryWait(std::nullopt, 0, 0.0), milliseconds(500));
  EXPECT_EQ(retryWait(std::nullopt, 2, 0.0), milliseconds(2000));
  EXPECT_EQ(retryWait(std::nullopt, 1'000'000, 0.0), milliseconds(8000));
}

}  // namespace
}  // namespace chorus
