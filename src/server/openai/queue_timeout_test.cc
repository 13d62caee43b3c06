// Queue timeouts and fair shares over the routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;

constexpr const char* kAsk = R"({"model":"base","prompt":"abc","max_tokens":2,"n":3})";

class QueueTimeoutTest : public RoutesTest {
 protected:
  HttpResponse ask(const std::string& header) {
    HttpHeaders headers;
    if (!header.empty()) headers.emplace_back("x-request-timeout-ms", header);
    return answer("POST", "/v1/completions", kAsk, headers);
  }
};

TEST_F(QueueTimeoutTest, TheShorterOfServerAndClientCounts) {
  EXPECT_EQ(ask("").status, 200);
  EXPECT_FALSE(engine.seen[0].getQueueTimeMs());
  EXPECT_EQ(ask("60000").status, 200);
  ASSERT_EQ(engine.seen.size(), 6u);
  EXPECT_LE(engine.seen[3].getQueueTimeMs(), milliseconds(60'000));
  EXPECT_GT(engine.seen[3].getQueueTimeMs(), milliseconds(50'000));
  EXPECT_FALSE(engine.seen[4].getQueueTimeMs()) << "a request has begun when its first choice has";
  context->queue_timeout = milliseconds(30'000);
  EXPECT_EQ(ask("60000").status, 200);
  EXPECT_LE(engine.seen[6].getQueueTimeMs(), milliseconds(30'000));
  EXPECT_EQ(ask("20000").status, 200);
  EXPECT_LE(engine.seen[9].getQueueTimeMs(), milliseconds(20'000));
  EXPECT_EQ(ask("").status, 200);
  EXPECT_GT(engine.seen[12].getQueueTimeMs(), milliseconds(20'000));
}

TEST_F(QueueTimeoutTest, OtherValuesAreRefused) {
  for (const char* value : {"0", "-1", "1.5", "1s", "+5", " 5", "1000000001", "99999999999999999999", "x"}) {
    const auto refused = ask(value);
    EXPECT_EQ(refused.status, 400) << value;
    EXPECT_THAT(refused.body, HasSubstr("x-request-timeout-ms must be a whole number from 1 to 1000000000"));
  }
}

TEST_F(QueueTimeoutTest, ARequestThatDoesNotBeginIsRefused) {
  engine.times_out = true;
  context->queue_timeout = milliseconds(5000);
  for (const char* stream : {"false", "true"}) {
    const auto late =
        answer("POST", "/v1/chat/completions",
               std::string(R"({"model":"base","messages":[{"role":"user","content":"x"}],"stream":)") + stream + "}");
    EXPECT_EQ(late.status, 503) << stream;
    EXPECT_EQ(Json::parse(late.body)["error"]["code"], "queue_timeout");
    EXPECT_THAT(late.body, HasSubstr("within its queue timeout of 5000 ms"));
    EXPECT_THAT(late.headers, Contains(Key("retry-after")));
  }
  // The request's own timeout is another error.
  context->queue_timeout.reset();
  EXPECT_EQ(ask("").status, 504);
}

TEST_F(QueueTimeoutTest, SharesAreOfClientsOrAdapters) {
  models.putAdapter({.name = "other", .adapter_id = 2, .text = codec});
  routes.requireKeys(std::make_shared<const ApiKeys>(ApiKeys::parse("keys:\n"
                                                                    "  - {name: a, key: key-of-a, weight: 5}\n"
                                                                    "  - {name: b, key: key-of-b}\n"
                                                                    "adapters:\n"
                                                                    "  - {name: shift, weight: 3}\n"
                                                                    "  - {name: \"oth*\", weight: 2}\n",
                                                                    "keys")),
                     clients);
  const auto share = [&](const std::string& key, const std::string& model, const std::string& more = "") {
    const auto response =
        answer("POST", "/v1/completions", R"({"prompt":"x","max_tokens":1,"model":")" + model + "\"" + more + "}",
               {{"x-api-key", "key-of-" + key}});
    EXPECT_EQ(response.status, 200) << response.body;
    return engine.seen.back().getFairShare();
  };
  EXPECT_FALSE(share("a", "base"));
  context->fair_by = FairBy::kClients;
  const auto of_a = share("a", "base"), of_b = share("b", "shift");
  EXPECT_EQ(of_a->weight, 5);
  EXPECT_EQ(of_b->weight, 1);
  EXPECT_NE(of_a->group, of_b->group);
  EXPECT_EQ(share("a", "shift")->group, of_a->group);
  context->fair_by = FairBy::kAdapters;
  const auto base = share("a", "base"), shift = share("a", "shift"), other = share("b", "other");
  EXPECT_EQ(base->weight, 1);
  EXPECT_EQ(shift->weight, 3);
  EXPECT_EQ(other->weight, 2);
  EXPECT_EQ(share("b", "shift")->group, shift->group);
  const auto both = share("a", "base", R"(,"adapters":[{"name":"shift","weight":1},{"name":"other","weight":1}])");
  EXPECT_EQ(both->weight, 2);
  const std::set<executor::IdType> groups = {base->group, shift->group, other->group, both->group};
  EXPECT_EQ(groups.size(), 4u);
}

}  // namespace
}  // namespace chorus::server
