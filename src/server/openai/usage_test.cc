// Counts of tokens in answers.
#include <gtest/gtest.h>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

class UsageTest : public RoutesTest {
 protected:
  static int64_t cachedOf(const Json& usage) { return usage["prompt_tokens_details"]["cached_tokens"].get<int64_t>(); }
};

TEST_F(UsageTest, CachedTokensOfAnAnswer) {
  EXPECT_EQ(cachedOf(completion(R"("prompt":[97,98,99],"max_tokens":2)")["usage"]), 0);
  engine.cached_tokens = 4;
  EXPECT_EQ(cachedOf(completion(R"("prompt":[97,98,99],"max_tokens":2)")["usage"]), 8);
  EXPECT_EQ(cachedOf(completion(R"("prompt":[[97],[98],[99]],"max_tokens":2)")["usage"]), 24) << "of all prompts";
  EXPECT_EQ(cachedOf(chat(R"("messages":[{"role":"user","content":"hi"}],"max_tokens":2)")["usage"]), 8);
}

// The other choices of a prompt find what its first one has computed, which was not cached before.
TEST_F(UsageTest, ChoicesCountTheSmallestNumber) {
  engine.cached_tokens = 3;
  EXPECT_EQ(cachedOf(completion(R"("prompt":[97,98],"max_tokens":2,"n":3)")["usage"]), 3);
}

TEST_F(UsageTest, StreamsCountSoFarWhenAsked) {
  engine.cached_tokens = 2;
  const std::string body =
      R"({"model":"base","messages":[{"role":"user","content":"hi"}],"max_tokens":4,"stream":true,"stream_options":)";
  const auto plain = events(answer("POST", "/v1/chat/completions", body + R"({"include_usage":true}})").body);
  for (size_t i = 0; i + 1 < plain.size(); ++i) EXPECT_TRUE(plain[i]["usage"].is_null());
  EXPECT_EQ(cachedOf(plain.back()["usage"]), 2);
  const auto counted = events(
      answer("POST", "/v1/chat/completions", body + R"({"include_usage":true,"continuous_usage_stats":true}})").body);
  ASSERT_EQ(counted.size(), 6u) << "the role, four tokens, the usage";
  for (size_t i = 0; i < counted.size(); ++i) {
    EXPECT_EQ(counted[i]["usage"]["completion_tokens"], std::min<size_t>(i, 4));
    EXPECT_EQ(counted[i]["usage"]["prompt_tokens"], plain.back()["usage"]["prompt_tokens"]);
    EXPECT_EQ(cachedOf(counted[i]["usage"]), 4);
  }
  EXPECT_EQ(answer("POST", "/v1/chat/completions", body + R"({"continuous_usage_stats":true}})").status, 400);
}

}  // namespace
}  // namespace chorus::server
