#include "server/openai/tokenize.h"

#include <gtest/gtest.h>

#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

// Every token is one higher than the base model's.
class ShiftedCodec : public FakeCodec {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, WorkMeter& meter,
                              const EncodeLimits& limits) const override {
    auto ids = FakeCodec::encode(text, add_special_tokens, meter, limits);
    for (int32_t& id : ids) ++id;
    return ids;
  }
};

class TokenizeTest : public RoutesTest {
 protected:
  Json post(const std::string& path, const std::string& body, int status = 200) {
    const auto response = answer("POST", path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
};

TEST_F(TokenizeTest, TextInVllmsShape) {
  EXPECT_EQ(post("/tokenize", R"({"model":"base","prompt":"ab"})"),
            (Json{{"count", 3}, {"max_model_len", 256}, {"tokens", {256, 97, 98}}, {"token_strs", nullptr}}));
  EXPECT_EQ(post("/v1/tokenize", R"({"prompt":"ab","add_special_tokens":false,"return_token_strs":true})"),
            (Json{{"count", 2}, {"max_model_len", 256}, {"tokens", {97, 98}}, {"token_strs", {"<a>", "<b>"}}}));
  EXPECT_EQ(post("/tokenize", R"({"prompt":"","add_special_tokens":false})")["tokens"], Json::array());
}

TEST_F(TokenizeTest, ConversationsAreRendered) {
  const std::string messages = R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}])";
  EXPECT_EQ(post("/tokenize", messages + "}")["count"], 8) << "user:hi; without special tokens";
  EXPECT_EQ(post("/tokenize", messages + R"(,"add_special_tokens":true})")["count"], 9);
  EXPECT_EQ(post("/tokenize", messages + R"(,"chat_template_kwargs":{"k":1}})")["count"], 13) << "[k=1] comes first";
  EXPECT_EQ(post("/tokenize", messages + R"(,"chat_template":"{{ x }}"})", 403)["error"]["param"], "chat_template");
  EXPECT_EQ(post("/tokenize", messages + R"(,"prompt":"x"})", 400)["error"]["param"], "messages");
  EXPECT_EQ(post("/tokenize", R"({"model":"base"})", 400)["error"]["param"], "prompt");
}

TEST_F(TokenizeTest, AdaptersHaveTheirOwnTokenizers) {
  models.putAdapter({.name = "own", .adapter_id = 5, .text = std::make_shared<ShiftedCodec>()});
  EXPECT_EQ(post("/tokenize", R"({"model":"own","prompt":"ab","add_special_tokens":false})")["tokens"], (Json{98, 99}));
  EXPECT_EQ(post("/tokenize", R"({"model":"none","prompt":"ab"})", 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(post("/detokenize", R"({"model":"none","tokens":[1]})", 404)["error"]["code"], "model_not_found");
}

// Clients count the tokens of a text before they shorten it.
TEST_F(TokenizeTest, ATextMayBeLongerThanTheContext) {
  EXPECT_EQ(post("/tokenize", R"({"prompt":")" + std::string(10'000, 'x') + "\"}")["count"], 10'001);
  const Json refused = post("/tokenize", R"({"prompt":")" + std::string(400'000, 'x') + "\"}", 400);
  EXPECT_EQ(refused["error"]["code"], "request_too_complex") << "8 bytes a byte are more than 3 MiB";
  endRequests();
}

TEST_F(TokenizeTest, DetokenizeKeepsSpecialTokens) {
  EXPECT_EQ(post("/detokenize", R"({"model":"base","tokens":[97,34,98,257]})"), (Json{{"prompt", "a\"b</s>"}}));
  EXPECT_EQ(post("/v1/detokenize", R"({"tokens":[97,257],"skip_special_tokens":true})")["prompt"], "a");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[]})")["prompt"], "");
  for (const char* tokens : {"[258]", "[-1]", "[1.5]", "\"x\"", "[2147483648]", "[[1]]"}) {
    EXPECT_EQ(post("/detokenize", fmt::format(R"({{"tokens":{}}})", tokens), 400)["error"]["param"], "tokens")
        << tokens;
  }
}

}  // namespace
}  // namespace chorus::server
