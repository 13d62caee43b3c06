// Tests what requests may do with each API key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class AccessTest : public RoutesTest {
 protected:
  AccessTest() {
    models.putAdapter({.name = "secret", .adapter_id = 2, .text = codec});
    routes.requireKeys(std::make_shared<const ApiKeys>(
                           ApiKeys::parse("keys:\n"
                                          "  - {name: all, key: key-of-all, admin: true}\n"
                                          "  - {name: one, key: key-of-one, adapters: [shift]}\n"
                                          "  - {name: none, key: key-of-none, base: false, adapters: []}\n",
                                          "keys")),
                       clients);
  }
  HttpResponse as(const std::string& key, const std::string& method, const std::string& path,
                  const std::string& body = "") {
    return answer(method, path, body, {{"authorization", "Bearer key-of-" + key}});
  }
  static std::string ask(const std::string& model) {
    return R"({"prompt":"x","max_tokens":1,"model":")" + model + "\"}";
  }
};

TEST_F(AccessTest, OnlyHealthIsOpen) {
  EXPECT_EQ(answer("GET", "/v1/health/live").status, 200);
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 200);
  EXPECT_EQ(answer("GET", "/health").status, 200);
  EXPECT_EQ(answer("GET", "/ping").status, 200);
  for (const char* path : {"/v1/models", "/v1/models/base", "/v1/version", "/version", "/v1/nothing", "/openapi.json",
                           "/v1/health/other", "/health/"}) {
    const auto refused = answer("GET", path);
    EXPECT_EQ(refused.status, 401) << path;
    EXPECT_THAT(refused.headers, Contains(Pair("www-authenticate", "Bearer")));
    EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "invalid_api_key");
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/tokenize"}) {
    EXPECT_EQ(answer("POST", path, ask("base")).status, 401) << path;
  }
  EXPECT_EQ(as("nobody", "GET", "/v1/models").status, 401);
  EXPECT_EQ(as("all", "GET", "/v1/models").status, 200);
  EXPECT_EQ(as("all", "GET", "/v1/nothing").status, 404);
}

TEST_F(AccessTest, OthersAdaptersDoNotExist) {
  const auto listed = [&](const std::string& key) {
    const Json list = Json::parse(as(key, "GET", "/v1/models").body);
    std::string names;
    for (const Json& model : list["data"]) names += model["id"].get<std::string>() + " ";
    return names;
  };
  EXPECT_EQ(listed("all"), "base secret shift ");
  EXPECT_EQ(listed("one"), "base shift ");
  EXPECT_EQ(listed("none"), "");
  EXPECT_EQ(as("one", "POST", "/v1/completions", ask("shift")).status, 200);
  EXPECT_EQ(as("one", "POST", "/v1/completions", ask("base")).status, 200);
  EXPECT_EQ(as("none", "POST", "/v1/completions", ask("base")).status, 404);
  std::string forbidden = as("one", "POST", "/v1/completions", ask("secret")).body;
  const std::string unknown = as("one", "POST", "/v1/completions", ask("nobody")).body;
  forbidden.replace(forbidden.find("secret"), 6, "nobody");
  EXPECT_EQ(forbidden, unknown);
  EXPECT_EQ(as("one", "GET", "/v1/models/secret").status, 404);
  EXPECT_EQ(as("all", "GET", "/v1/models/secret").status, 200);
  const std::string composed =
      R"({"model":"base","prompt":"x","max_tokens":1,"adapters":[{"name":"secret","weight":1}]})";
  EXPECT_EQ(as("one", "POST", "/v1/completions", composed).status, 404);
  EXPECT_EQ(as("all", "POST", "/v1/completions", composed).status, 200);
}

TEST_F(AccessTest, AKeyIsOneClient) {
  as("one", "POST", "/v1/completions", ask("base"));
  as("all", "POST", "/v1/completions", ask("base"));
  as("one", "POST", "/v1/completions", ask("shift"));
  ASSERT_EQ(engine.seen.size(), 3u);
  EXPECT_EQ(engine.seen[0].getClientId(), engine.seen[2].getClientId());
  EXPECT_NE(engine.seen[0].getClientId(), engine.seen[1].getClientId());
}

}  // namespace
}  // namespace chorus::server
