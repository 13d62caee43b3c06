#include "server/access/usage_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/json.h"
#include "server/access/limit_answers.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

const TokenBucket::Time kStart{std::chrono::hours(100)};

class UsageLimitsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<UsageLimits> make(LimitSettings client, LimitSettings adapter = {}, size_t most = 100) {
    return std::make_shared<UsageLimits>(
        UsageLimits::Options{.client = client, .adapter = adapter, .max_remembered = most});
  }
  HttpRequest from(const std::string& client, std::shared_ptr<const KeyRights> key = nullptr) {
    HttpRequest request;
    request.client = clients->find(client);
    request.key = std::move(key);
    return request;
  }
  // The response of the error that `call` throws.
  template <typename Call>
  static HttpResponse refusal(Call call) {
    try {
      call();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 429);
      return error.response();
    }
    ADD_FAILURE() << "not refused";
    return {};
  }
  static std::string messageOf(const HttpResponse& response) {
    return Json::parse(response.body)["error"]["message"].get<std::string>();
  }

  std::shared_ptr<ClientRegistry> clients = std::make_shared<ClientRegistry>(ClientMemoryLimits{});
};

TEST_F(UsageLimitsTest, NothingIsKeptWithoutLimits) {
  const auto limits = make({});
  EXPECT_EQ(limits->admit(from("a"), nullptr, kStart), nullptr);
  const auto none = make({.requests_per_minute = 0, .tokens_per_minute = 0, .concurrent_requests = 0});
  EXPECT_EQ(none->admit(from("a"), nullptr, kStart), nullptr);
  EXPECT_EQ(none->remembered(), 0u);
}

TEST_F(UsageLimitsTest, RequestsPerMinute) {
  const auto limits = make({.requests_per_minute = 3});
  for (int64_t i = 0; i < 3; ++i) {
    const auto usage = limits->admit(from("a"), nullptr, kStart);
    EXPECT_THAT(usage->begin({}, 10, kStart),
                ElementsAre(Pair("x-ratelimit-limit-requests", "3"),
                            Pair("x-ratelimit-remaining-requests", std::to_string(2 - i)),
                            Pair("x-ratelimit-reset-requests", i == 2 ? "1m0s" : std::to_string(20 * (i + 1)) + "s")));
    EXPECT_FALSE(usage->limitsTokens());
  }
  const auto refused = refusal([&] { limits->admit(from("a"), nullptr, kStart + milliseconds(500)); });
  EXPECT_EQ(Json::parse(refused.body)["error"],
            (Json{{"message",
                   "Rate limit reached for this client on requests per minute: limit 3, used 3, requested 1. "
                   "Please try again in 19.5s, or let the operator raise --limit_requests_per_minute."},
                  {"type", "requests"},
                  {"param", nullptr},
                  {"code", "rate_limit_exceeded"}}));
  EXPECT_THAT(refused.headers,
              ElementsAre(Pair("x-ratelimit-limit-requests", "3"), Pair("x-ratelimit-remaining-requests", "0"),
                          Pair("x-ratelimit-reset-requests", "59.5s"), Pair("retry-after-ms", "19500"),
                          Pair("retry-after", "20")));
  EXPECT_NE(limits->admit(from("b"), nullptr, kStart), nullptr) << "another client";
  EXPECT_NE(limits->admit(from("a"), nullptr, kStart + seconds(20)), nullptr) << "after the wait";
}

TEST_F(UsageLimitsTest, TokensArePromptsAndAnswers) {
  const auto limits = make({.tokens_per_minute = 600});
  const auto first = limits->admit(from("a"), nullptr, kStart);
  EXPECT_THAT(first->begin({}, 100, kStart),
              ElementsAre(Pair("x-ratelimit-limit-tokens", "600"), Pair("x-ratelimit-remaining-tokens", "500"),
                          Pair("x-ratelimit-reset-tokens", "10s")));
  EXPECT_TRUE(first->limitsTokens());
  first->generated(450, kStart);
  const auto second = limits->admit(from("a"), nullptr, kStart);
  auto refused = refusal([&] { second->begin({}, 51, kStart); });
  EXPECT_EQ(messageOf(refused),
            "Rate limit reached for this client on tokens per minute: limit 600, used 550, requested 51. Please try "
            "again in 100ms, or let the operator raise --limit_tokens_per_minute.");
  EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "tokens");
  EXPECT_THAT(refused.headers, AllOf(Contains(Pair("retry-after-ms", "100")), Contains(Pair("retry-after", "1")),
                                     Contains(Pair("x-ratelimit-remaining-tokens", "50")),
                                     Contains(Pair("x-ratelimit-reset-tokens", "55s"))));
  EXPECT_THAT(second->begin({}, 50, kStart), Contains(Pair("x-ratelimit-remaining-tokens", "0")));
  // A running answer is not cut: it may use more than what is left, which later requests wait for.
  second->generated(600, kStart);
  EXPECT_THAT(messageOf(refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({}, 1, kStart); })),
              HasSubstr("used 1200, requested 1. Please try again in 1m0.1s"));
  // No waiting helps a prompt of more tokens than the limit.
  refused = refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({}, 601, kStart); });
  EXPECT_THAT(messageOf(refused), HasSubstr("Request too large for this client on tokens per minute: limit 600, "
                                            "requested 601. Please reduce the length of the prompt"));
  EXPECT_THAT(refused.headers, AllOf(Contains(Pair("x-should-retry", "false")), Not(Contains(Key("retry-after")))));
}

TEST_F(UsageLimitsTest, ConcurrentRequestsEndOnce) {
  const auto limits = make({.concurrent_requests = 2});
  auto first = limits->admit(from("a"), nullptr, kStart);
  const auto second = limits->admit(from("a"), nullptr, kStart);
  EXPECT_THAT(first->begin({}, 5, kStart), IsEmpty()) << "OpenAI has no headers for it";
  const auto refused = refusal([&] { limits->admit(from("a"), nullptr, kStart); });
  EXPECT_EQ(messageOf(refused),
            "Rate limit reached for this client on concurrent requests: limit 2, used 2, requested 1. Please try again "
            "when one of them has ended, or let the operator raise --limit_concurrent_requests.");
  EXPECT_THAT(refused.headers, ElementsAre(Pair("retry-after-ms", "500"), Pair("retry-after", "1")));
  first->end();
  first->end();
  first = nullptr;
  const auto third = limits->admit(from("a"), nullptr, kStart);
  refusal([&] { limits->admit(from("a"), nullptr, kStart); });
}

TEST_F(UsageLimitsTest, ARefusedRequestCountsForNothing) {
  const auto limits = make({.requests_per_minute = 10, .tokens_per_minute = 100, .concurrent_requests = 10},
                           {.requests_per_minute = 1, .concurrent_requests = 5});
  limits->admit(from("a"), nullptr, kStart)->begin({"x"}, 1, kStart);
  for (int i = 0; i < 50; ++i) {
    refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({"x", "y"}, 1, kStart); });
    refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({"y"}, 100, kStart); });
  }
  const auto headers = limits->admit(from("a"), nullptr, kStart)->begin({"y"}, 99, kStart);
  EXPECT_THAT(headers, AllOf(Contains(Pair("x-ratelimit-limit-requests", "1")),
                             Contains(Pair("x-ratelimit-remaining-requests", "0")),
                             Contains(Pair("x-ratelimit-remaining-tokens", "0"))))
      << "of client and adapter, the limit that has least left";
}

TEST_F(UsageLimitsTest, EachRefusalIsCountedOnceForTheLimitThatItNames) {
  const auto counters = std::make_shared<LimitCounters>();
  const auto limits = std::make_shared<UsageLimits>(
      UsageLimits::Options{.client = {.requests_per_minute = 3, .tokens_per_minute = 100, .concurrent_requests = 2},
                           .adapter = {.requests_per_minute = 2, .tokens_per_minute = 50, .concurrent_requests = 1},
                           .counters = counters});
  using Counts = std::vector<std::vector<uint64_t>>;  // by subject and kind
  const auto counts = [&] {
    Counts all;
    for (const LimitSubject subject : kLimitSubjects) {
      all.emplace_back();
      for (const LimitKind kind : kLimitKinds) all.back().push_back(counters->refused(subject, kind));
    }
    return all;
  };
  const auto first = limits->admit(from("a"), nullptr, kStart);
  first->begin({"x"}, 10, kStart);
  EXPECT_EQ(counts(), (Counts{{0, 0, 0}, {0, 0, 0}}));
  refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({"x"}, 10, kStart); });
  EXPECT_EQ(counts(), (Counts{{0, 0, 0}, {0, 0, 1}}));
  refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({"y"}, 51, kStart); });
  EXPECT_EQ(counts(), (Counts{{0, 0, 0}, {0, 1, 1}}));
  refusal([&] { limits->admit(from("a"), nullptr, kStart)->begin({"y"}, 101, kStart); });
  EXPECT_EQ(counts(), (Counts{{0, 1, 0}, {0, 1, 1}})) << "the client's limit and the adapter's; the client's is named";
  {
    const auto second = limits->admit(from("a"), nullptr, kStart);
    for (int i = 0; i < 3; ++i) refusal([&] { limits->admit(from("a"), nullptr, kStart); });
  }
  EXPECT_EQ(counts(), (Counts{{0, 1, 3}, {0, 1, 1}}));
  limits->admit(from("a"), nullptr, kStart)->begin({}, 10, kStart);
  for (int i = 0; i < 2; ++i) refusal([&] { limits->admit(from("a"), nullptr, kStart); });
  EXPECT_EQ(counts(), (Counts{{2, 1, 3}, {0, 1, 1}}));
  first->end();
  limits->admit(from("b"), nullptr, kStart)->begin({"x"}, 10, kStart);
  refusal([&] { limits->admit(from("c"), nullptr, kStart)->begin({"x"}, 10, kStart); });
  EXPECT_EQ(counts(), (Counts{{2, 1, 3}, {1, 1, 1}}));
}

TEST_F(UsageLimitsTest, RequestsOfAnthropicsApiAlsoHaveItsHeaders) {
  // 2024-02-28T23:59:30.5Z
  constexpr auto kNow = [] { return std::chrono::system_clock::time_point(milliseconds(1'709'164'770'500)); };
  const auto limits = std::make_shared<UsageLimits>(UsageLimits::Options{
      .client = {.requests_per_minute = 2, .tokens_per_minute = 600}, .adapter = {}, .wall_clock = kNow});
  HttpRequest request = from("a");
  request.path = "/v1/messages";
  const auto usage = limits->admit(request, nullptr, kStart);
  EXPECT_THAT(usage->begin({}, 100, kStart),
              ElementsAre(Pair("x-ratelimit-limit-requests", "2"), Pair("x-ratelimit-remaining-requests", "1"),
                          Pair("x-ratelimit-reset-requests", "30s"), Pair("anthropic-ratelimit-requests-limit", "2"),
                          Pair("anthropic-ratelimit-requests-remaining", "1"),
                          Pair("anthropic-ratelimit-requests-reset", "2024-02-29T00:00:01Z"),
                          Pair("x-ratelimit-limit-tokens", "600"), Pair("x-ratelimit-remaining-tokens", "500"),
                          Pair("x-ratelimit-reset-tokens", "10s"), Pair("anthropic-ratelimit-tokens-limit", "600"),
                          Pair("anthropic-ratelimit-tokens-remaining", "500"),
                          Pair("anthropic-ratelimit-tokens-reset", "2024-02-28T23:59:41Z")));
  const auto second = limits->admit(request, nullptr, kStart);
  EXPECT_THAT(refusal([&] { second->begin({}, 501, kStart); }).headers,
              AllOf(Contains(Pair("anthropic-ratelimit-tokens-limit", "600")),
                    Contains(Pair("anthropic-ratelimit-tokens-remaining", "500")),
                    Contains(Pair("anthropic-ratelimit-tokens-reset", "2024-02-28T23:59:41Z")),
                    Contains(Pair("retry-after", "1")), Contains(Pair("retry-after-ms", "100"))));
  const auto third = limits->admit(request, nullptr, kStart);  // the second one counts for nothing
  EXPECT_THAT(refusal([&] { limits->admit(request, nullptr, kStart); }).headers,
              ElementsAre(Pair("x-ratelimit-limit-requests", "2"), Pair("x-ratelimit-remaining-requests", "0"),
                          Pair("x-ratelimit-reset-requests", "1m0s"), Pair("anthropic-ratelimit-requests-limit", "2"),
                          Pair("anthropic-ratelimit-requests-remaining", "0"),
                          Pair("anthropic-ratelimit-requests-reset", "2024-02-29T00:00:31Z"),
                          Pair("retry-after-ms", "30000"), Pair("retry-after", "30")));
}

TEST_F(UsageLimitsTest, AdaptersAreLimitedOverAllClients) {
  const auto limits = make({}, {.tokens_per_minute = 60, .concurrent_requests = 1});
  const auto first = limits->admit(from("a"), nullptr, kStart);
  first->begin({"x"}, 10, kStart);
  EXPECT_THAT(messageOf(refusal([&] { limits->admit(from("b"), nullptr, kStart)->begin({"y", "x"}, 10, kStart); })),
              AllOf(HasSubstr("for the adapter `x` on concurrent requests: limit 1, used 1"),
                    HasSubstr("raise --adapter_limit_concurrent_requests.")));
  EXPECT_NO_THROW(limits->admit(from("b"), nullptr, kStart)->begin({}, 1000, kStart)) << "the base model";
  first->generated(50, kStart);
  first->end();
  EXPECT_THAT(messageOf(refusal([&] { limits->admit(from("b"), nullptr, kStart)->begin({"x"}, 10, kStart); })),
              HasSubstr("on tokens per minute: limit 60, used 60, requested 10. Please try again in 10s, or let the "
                        "operator raise --adapter_limit_tokens_per_minute."));
}

TEST_F(UsageLimitsTest, TheFileOfKeysHasLimitsOfItsOwn) {
  const auto keys = std::make_shared<const ApiKeys>(
      ApiKeys::parse("keys:\n"
                     "  - {name: slow, key: key-of-slow, limits: {requests_per_minute: 1}}\n"
                     "  - {name: free, key: key-of-free, limits: {requests_per_minute: 0}}\n"
                     "  - {name: plain, key: key-of-plain}\n"
                     "adapters:\n"
                     "  - {name: \"court-*\", limits: {requests_per_minute: 2}}\n"
                     "  - {name: court-7, limits: {requests_per_minute: 1, concurrent_requests: 0}}\n"
                     "  - {name: \"*\", limits: {requests_per_minute: 0}}\n",
                     "keys"));
  const auto limits = make({.requests_per_minute = 3}, {.requests_per_minute = 5, .concurrent_requests = 1});
  const auto admitted = [&](const std::string& name) {
    HttpRequest request = from("key " + name);
    request.headers = {{"x-api-key", "key-of-" + name}};
    request.key = keys->authenticate(request);
    return limits->admit(request, keys, kStart);
  };
  const auto one = admitted("slow");
  EXPECT_THAT(
      messageOf(refusal([&] { admitted("slow"); })),
      AllOf(HasSubstr("for this API key"), HasSubstr("raise 'requests_per_minute' of the key in --api_keys_file.")));
  for (int i = 0; i < 100; ++i) admitted("free");
  for (int i = 0; i < 3; ++i) admitted("plain");
  refusal([&] { admitted("plain"); });

  const auto uses = [&](const std::string& adapter) {
    std::vector<std::unique_ptr<Usage>> held;
    try {
      while (held.size() < 10) {
        held.push_back(admitted("free"));
        held.back()->begin({adapter}, 1, kStart);
      }
    } catch (const ApiError& error) {
      return std::to_string(held.size() - 1) + " " + error.message();
    }
    return std::string("10");
  };
  EXPECT_THAT(uses("court-7"),
              HasSubstr("1 Rate limit reached for the adapter `court-7` on requests per minute: limit 1"));
  EXPECT_THAT(uses("court-8"), HasSubstr("1 Rate limit reached for the adapter `court-8` on concurrent requests"));
  EXPECT_THAT(uses("other"), HasSubstr("1 Rate limit reached for the adapter `other` on concurrent requests"));
}

TEST_F(UsageLimitsTest, ChangedLimitsKeepWhatWasUsed) {
  const auto limits = make({});
  const auto with = [&](int64_t requests) {
    auto key = std::make_shared<KeyRights>();
    key->limits.requests_per_minute = requests;
    return limits->admit(from("key a", key), nullptr, kStart);
  };
  with(5);
  with(5);
  EXPECT_THAT(with(10)->begin({}, 1, kStart), Contains(Pair("x-ratelimit-remaining-requests", "7")));
  refusal([&] { with(3); });
  EXPECT_EQ(with(0), nullptr);
  EXPECT_THAT(with(3)->begin({}, 1, kStart), Contains(Pair("x-ratelimit-remaining-requests", "2")))
      << "what was used without a limit is not known";
}

TEST_F(UsageLimitsTest, MemoryIsBounded) {
  const auto limits = make({.requests_per_minute = 60}, {}, 32);
  for (int i = 0; i < 1000; ++i) limits->admit(from(std::to_string(i)), nullptr, kStart + milliseconds(100 * i));
  EXPECT_LE(limits->remembered(), 32u);

  // Clients without requests that have used least are forgotten; one that has reached its limit is not.
  const auto full = make({.requests_per_minute = 2}, {}, 32);
  for (int i = 0; i < 2; ++i) full->admit(from("greedy"), nullptr, kStart);
  const auto held = full->admit(from("held"), nullptr, kStart);
  for (int i = 0; i < 200; ++i) full->admit(from(std::to_string(i)), nullptr, kStart);
  EXPECT_LE(full->remembered(), 32u);
  refusal([&] { full->admit(from("greedy"), nullptr, kStart); });
  full->admit(from("held"), nullptr, kStart);
  refusal([&] { full->admit(from("held"), nullptr, kStart); });

  const auto busy = make({.concurrent_requests = 1}, {}, 2);
  const auto a = busy->admit(from("a"), nullptr, kStart), b = busy->admit(from("b"), nullptr, kStart);
  try {
    busy->admit(from("c"), nullptr, kStart);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 503);
  }
}

// The search is of all clients, so it must not be repeated for each new one.
TEST_F(UsageLimitsTest, AFullMemoryForgetsASixteenthEvenIfOneIsUnused) {
  const auto limits = make({.requests_per_minute = 1}, {}, 64);
  limits->admit(from("unused"), nullptr, kStart);
  for (int i = 0; i < 63; ++i) limits->admit(from(std::to_string(i)), nullptr, kStart + seconds(30 + i % 2));
  ASSERT_EQ(limits->remembered(), 64u);
  limits->admit(from("next"), nullptr, kStart + seconds(60));
  EXPECT_EQ(limits->remembered(), 61u);
  refusal([&] { limits->admit(from("1"), nullptr, kStart + seconds(60)); });
}

TEST(TimeText, IsOfRfc3339AndRoundedUp) {
  const auto text = [](int64_t ms) { return timeText(std::chrono::system_clock::time_point(milliseconds(ms))); };
  EXPECT_EQ(text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(text(1), "1970-01-01T00:00:01Z");
  EXPECT_EQ(text(951'782'400'000), "2000-02-29T00:00:00Z");
  EXPECT_EQ(text(4'102'444'799'001), "2100-01-01T00:00:00Z");
}

TEST(DurationText, IsThatOfOpenAi) {
  EXPECT_EQ(durationText(microseconds(0)), "0ms");
  EXPECT_EQ(durationText(microseconds(1)), "1ms");
  EXPECT_EQ(durationText(milliseconds(999)), "999ms");
  EXPECT_EQ(durationText(milliseconds(1000)), "1s");
  EXPECT_EQ(durationText(milliseconds(8640)), "8.64s");
  EXPECT_EQ(durationText(seconds(360)), "6m0s");
  EXPECT_EQ(durationText(milliseconds(3'723'004)), "1h2m3.004s");
}

}  // namespace
}  // namespace chorus::server
