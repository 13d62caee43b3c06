// Limits on what clients and adapters use, over every route that generates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

struct Call {
  const char* path;
  const char* body;  // without the model; its prompt has more than one token, its answer at most three
};
constexpr Call kCalls[] = {
    {"/v1/completions", R"("prompt":"abc","max_tokens":3)"},
    {"/v1/chat/completions", R"("messages":[{"role":"user","content":"abc"}],"max_tokens":3)"},
    {"/v1/responses", R"("input":"abc","max_output_tokens":16)"},
    {"/v1/messages", R"("messages":[{"role":"user","content":"abc"}],"max_tokens":3)"},
};

class LimitsTest : public RoutesTest {
 protected:
  explicit LimitsTest(const UsageLimits::Options& options) : RoutesTest(std::make_shared<UsageLimits>(options)) {}
  std::shared_ptr<FakeExchange> ask(const Call& call, const std::string& model, const std::string& more = "") {
    return send("POST", call.path, "{\"model\":\"" + model + "\"," + call.body + more + "}");
  }
  static std::string header(const HttpResponse& response, const std::string& name) {
    for (const auto& [known, value] : response.headers) {
      if (known == name) return value;
    }
    return "";
  }

  // How many tokens a bucket of 1,000 tokens per minute may have got since a time: one in 60 ms.
  static int64_t refill(std::chrono::steady_clock::time_point since) {
    return 1 + (std::chrono::steady_clock::now() - since) / std::chrono::milliseconds(60);
  }
};

class RequestLimitsTest : public LimitsTest {
 protected:
  RequestLimitsTest() : LimitsTest({.client = {.requests_per_minute = 5}, .adapter = {.requests_per_minute = 3}}) {}
};

TEST_F(RequestLimitsTest, AllRoutesCountTogether) {
  int left = 5;
  for (const Call& call : kCalls) {
    const auto response = ask(call, "base", ",\"stream\":true")->wait();
    EXPECT_EQ(response.status, 200) << call.path;
    EXPECT_EQ(header(response, "x-ratelimit-remaining-requests"), std::to_string(--left)) << call.path;
    const bool anthropic = std::string(call.path) == "/v1/messages";
    EXPECT_EQ(header(response, "anthropic-ratelimit-requests-remaining"), anthropic ? std::to_string(left) : "");
    EXPECT_THAT(response.headers, Not(Contains(Key("x-ratelimit-limit-tokens"))));
  }
  EXPECT_EQ(answer("POST", "/tokenize", R"({"model":"base","prompt":"abc"})").status, 200);
  EXPECT_EQ(answer("GET", "/v1/completions").status, 405) << "not an inference";
  EXPECT_EQ(ask(kCalls[0], "nobody")->wait().status, 404) << "counts: the server has prepared it";
  for (const Call& call : kCalls) {
    const auto refused = ask(call, "base")->wait();
    EXPECT_EQ(refused.status, 429) << call.path;
    EXPECT_THAT(refused.body, AllOf(HasSubstr("for this client on requests per minute: limit 5"),
                                    HasSubstr("--limit_requests_per_minute")));
    const Json error = Json::parse(refused.body)["error"];
    const bool anthropic = std::string(call.path) == "/v1/messages";
    EXPECT_EQ(error["type"], anthropic ? "rate_limit_error" : "requests");
    if (!anthropic) {
      EXPECT_EQ(error["code"], "rate_limit_exceeded");
    }
    EXPECT_EQ(header(refused, "anthropic-ratelimit-requests-limit"), anthropic ? "5" : "");
    EXPECT_THAT(refused.headers, AllOf(Contains(Key("retry-after")), Contains(Key("retry-after-ms")),
                                       Contains(Pair("x-ratelimit-remaining-requests", "0"))));
  }
}

TEST_F(RequestLimitsTest, AnAdapterCountsAloneAndInACompose) {
  EXPECT_EQ(header(ask(kCalls[0], "shift")->wait(), "x-ratelimit-remaining-requests"), "2");
  const std::string composed = R"(,"adapters":[{"name":"shift","weight":1}])";
  EXPECT_EQ(header(ask(kCalls[0], "base", composed)->wait(), "x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(ask(kCalls[1], "shift")->wait().status, 200);
  for (const std::string& more : {std::string(), composed}) {
    const auto refused = ask(kCalls[0], more.empty() ? "shift" : "base", more)->wait();
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.body, HasSubstr("the adapter `shift` on requests per minute: limit 3, used 3"));
  }
  EXPECT_EQ(header(ask(kCalls[0], "base")->wait(), "x-ratelimit-remaining-requests"), "1") << "refusals count nothing";
}

class TokenLimitsTest : public LimitsTest {
 protected:
  TokenLimitsTest() : LimitsTest({.client = {.tokens_per_minute = 1000}, .adapter = {}}) {}
};

TEST_F(TokenLimitsTest, PromptsAndAnswersCount) {
  int64_t left = 1000;
  auto since = std::chrono::steady_clock::now();
  for (const bool stream : {false, true}) {
    for (const Call& call : kCalls) {
      const auto begin = std::chrono::steady_clock::now();
      const auto response = ask(call, "base", stream ? ",\"stream\":true" : "")->wait();
      ASSERT_EQ(response.status, 200);
      ASSERT_FALSE(engine.seen.empty());
      const auto& asked = engine.seen.back();
      EXPECT_TRUE(asked.getStreaming()) << "tokens are counted when they are generated";
      left -= static_cast<int64_t>(asked.getInputTokenIds().size());
      const int64_t stated = std::stoll(header(response, "x-ratelimit-remaining-tokens"));
      EXPECT_GE(stated, left) << call.path;
      EXPECT_LE(stated, left + refill(std::exchange(since, begin))) << call.path;
      left = stated - asked.getMaxTokens();  // FakeEngine never ends these answers earlier
    }
  }
}

TEST_F(TokenLimitsTest, SeveralPromptsCountOnceEachAndEveryChoiceGenerates) {
  const auto begin = std::chrono::steady_clock::now();
  const auto response = completion(R"("prompt":["abcd","efg"],"n":2,"max_tokens":5)");
  EXPECT_EQ(response["usage"]["total_tokens"], 4 + 3 + 2 + 4 * 5) << "each prompt has a first token of its own";
  const auto next = ask(kCalls[0], "base")->wait();
  const int64_t left = std::stoll(header(next, "x-ratelimit-remaining-tokens"));
  EXPECT_GE(left, 1000 - 29 - 4);
  EXPECT_LE(left, 1000 - 29 - 4 + refill(begin));
  const auto large = answer(
      "POST", "/v1/completions", R"({"model":"base","prompt":[)" + [] {
        std::string prompts = "\"" + std::string(180, 'a') + "\"";
        std::string all = prompts;
        for (int i = 0; i < 5; ++i) all += "," + prompts;
        return all;
      }() + R"(],"max_tokens":1})");
  EXPECT_EQ(large.status, 429);
  EXPECT_THAT(large.body,
              HasSubstr("Request too large for this client on tokens per minute: limit 1000, requested 1086"));
  EXPECT_EQ(header(large, "x-should-retry"), "false");
}

class RefusedPromptsTest : public LimitsTest {
 protected:
  RefusedPromptsTest()
      : LimitsTest({.client = {.requests_per_minute = 1000, .tokens_per_minute = 1000},
                    .adapter = {.requests_per_minute = 100, .tokens_per_minute = 1000}}) {}

  // Sends a prompt of 720 tokens with the adapter so often that all of them together exceed the limits.
  void expectRefusals(int status, const std::string& message, int max_tokens = 1) {
    const std::string prompt = "\"" + std::string(179, 'a') + "\"";
    const std::string body = R"({"model":"shift","prompt":[)" + prompt + "," + prompt + "," + prompt + "," + prompt +
                             R"(],"max_tokens":)" + std::to_string(max_tokens) + "}";
    for (int i = 0; i < 5; ++i) {
      const auto refused = answer("POST", "/v1/completions", body);
      EXPECT_EQ(refused.status, status);
      EXPECT_THAT(refused.body, HasSubstr(message));
    }
  }
};

TEST_F(RefusedPromptsTest, CostNoTokens) {
  const auto begin = std::chrono::steady_clock::now();
  expectRefusals(400, "'max_tokens' is too large", 250);
  engine.queue_limit = 0;
  expectRefusals(429, "request queue is full");
  engine.queue_limit = 64;
  const auto next = ask(kCalls[0], "shift")->wait();
  EXPECT_EQ(next.status, 200) << next.body;
  EXPECT_GE(std::stoll(header(next, "x-ratelimit-remaining-tokens")), 1000 - 4);
  const auto refilled =
      (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(600);  // of 100 per minute
  EXPECT_LE(std::stoll(header(next, "x-ratelimit-remaining-requests")), 100 - 11 + refilled)
      << "requests count when they arrive";
}

TEST_F(RefusedPromptsTest, APromptThatTheEngineTookCountsHoweverItEnds) {
  engine.failFromNow("broken", executor::ResponseErrorCode::kINTERNAL);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ask(kCalls[0], "shift")->wait().status, 500);
  engine.failFromNow("", executor::ResponseErrorCode::kINTERNAL);
  const auto next = ask(kCalls[0], "shift")->wait();
  EXPECT_LE(std::stoll(header(next, "x-ratelimit-remaining-tokens")), 1000 - 2 * 4 + refill(begin));
}

class ConcurrencyTest : public LimitsTest {
 protected:
  ConcurrencyTest() : LimitsTest({.client = {.concurrent_requests = 1}, .adapter = {}}) {}
};

TEST_F(ConcurrencyTest, APlaceIsFreeWhenTheAnswerEnds) {
  for (int i = 0; i < 20; ++i) {
    for (const Call& call : kCalls) EXPECT_EQ(ask(call, "base", i % 2 ? "" : ",\"stream\":true")->wait().status, 200);
  }
  EXPECT_EQ(ask(kCalls[0], "nobody")->wait().status, 404);
  engine.fails_at_once = true;
  engine.failFromNow("broken", executor::ResponseErrorCode::kINTERNAL);
  EXPECT_EQ(ask(kCalls[0], "base")->wait().status, 500);
  engine.failFromNow("", executor::ResponseErrorCode::kINTERNAL);
  EXPECT_EQ(ask(kCalls[0], "base")->wait().status, 200);
}

TEST_F(ConcurrencyTest, ADisconnectFreesThePlace) {
  engine.most_tokens = 100;
  const auto endless =
      send("POST", "/v1/completions", R"({"model":"base","prompt":"abc","max_tokens":250,"stream":true})");
  EXPECT_TRUE(eventually([&] { return engine.running() == 1; }));
  const auto refused = ask(kCalls[1], "base")->wait();
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("for this client on concurrent requests: limit 1, used 1"));
  endless->disconnect();
  // The engine runs the request before its exchange has the callback, so the place may be freed a little later.
  int status = 429;
  EXPECT_TRUE(eventually([&] {
    status = ask(kCalls[0], "base")->wait().status;
    return status != 429;
  }));
  EXPECT_EQ(status, 200);
}

}  // namespace
}  // namespace chorus::server
