#include "server/anthropic/messages.h"

#include <gtest/gtest.h>

#include "server/errors.h"
#include "server/testing/named_events.h"
#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

class MessagesTest : public RoutesTest {
 protected:
  Json send(const std::string& fields, int status = 200, const std::string& path = "/v1/messages") {
    const auto response = answer("POST", path, R"({"model":"base",)" + fields + "}");
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
  std::string promptSeen() { return codec->decode(engine.seen.back().getInputTokenIds(), true); }

  const std::string hi = R"("messages":[{"role":"user","content":"hi"}])";
};

TEST_F(MessagesTest, AWholeAnswer) {
  engine.cached_tokens = 2;
  Json json = send(hi + R"(,"max_tokens":4)");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("msg_"));
  json.erase("id");
  EXPECT_EQ(json, (Json{{"type", "message"},
                        {"role", "assistant"},
                        {"model", "base"},
                        {"content", {{{"type", "text"}, {"text", "user"}}}},
                        {"stop_reason", "max_tokens"},
                        {"stop_sequence", nullptr},
                        {"usage",
                         {{"input_tokens", 6},
                          {"cache_creation_input_tokens", 0},
                          {"cache_read_input_tokens", 2},
                          {"output_tokens", 4}}}}));
  const Json stopped = send(hi + R"(,"max_tokens":9,"stop_sequences":["r:","x"])");
  EXPECT_EQ(stopped["content"][0]["text"], "use");
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "r:");
  const Json ended = send(hi + R"(,"max_tokens":9,"stop_token_ids":[115])");
  EXPECT_EQ(ended["stop_reason"], "end_turn");
  EXPECT_TRUE(ended["stop_sequence"].is_null());
}

TEST_F(MessagesTest, SystemBlocksAndTurns) {
  send(R"("max_tokens":1,"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}},
                                   {"type":"text","text":"in rhyme"}],
          "messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":"b"},
                      {"role":"assistant","content":"c"},{"role":"user","content":"d"}])");
  EXPECT_EQ(promptSeen(), "system:be brief\nin rhyme;user:a\nb;assistant:c;user:d;");
  send(R"("max_tokens":1,"system":"x","top_k":5,"top_p":0.5,"temperature":0.5,)" + hi);
  EXPECT_EQ(promptSeen(), "system:x;user:hi;");
  EXPECT_EQ(engine.seen.back().getSamplingConfig().getTopK(), 5);
  send(R"("max_tokens":1,"system":[],)" + hi);
  EXPECT_EQ(promptSeen(), "user:hi;") << "no system message without text";
}

TEST_F(MessagesTest, AStreamHasAllEventsInOrder) {
  engine.cached_tokens = 2;
  const auto response = answer("POST", "/v1/messages", R"({"model":"shift","max_tokens":3,"stream":true,)" + hi + "}");
  const auto events = namedEvents(response.body);
  std::vector<std::string> types;
  std::string text;
  for (const auto& [name, data] : events) {
    types.push_back(name);
    EXPECT_EQ(data["type"], name);
    if (name == "content_block_delta") text += data["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(types, (std::vector<std::string>{"message_start", "content_block_start", "ping", "content_block_delta",
                                             "content_block_delta", "content_block_delta", "content_block_stop",
                                             "message_delta", "message_stop"}));
  EXPECT_EQ(text, "vtf");
  const Json& message = events[0].second["message"];
  EXPECT_EQ(message["content"], Json::array());
  EXPECT_EQ(message["usage"]["input_tokens"], 6);
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 2);
  EXPECT_EQ(message["usage"]["output_tokens"], 0);
  EXPECT_EQ(events[7].second["delta"], (Json{{"stop_reason", "max_tokens"}, {"stop_sequence", nullptr}}));
  EXPECT_EQ(events[7].second["usage"]["output_tokens"], 3);
}

TEST_F(MessagesTest, TokensAreCounted) {
  EXPECT_EQ(send(hi, 200, "/v1/messages/count_tokens"), (Json{{"input_tokens", 8}}));
  EXPECT_EQ(send(R"("system":"x",)" + hi, 200, "/v1/messages/count_tokens")["input_tokens"], 17);
  EXPECT_EQ(send(hi + R"(,"tools":[{"name":"f"}])", 400, "/v1/messages/count_tokens")["error"]["type"],
            "invalid_request_error");
  EXPECT_TRUE(engine.seen.empty());
}

TEST_F(MessagesTest, ErrorsHaveAnthropicsForm) {
  const auto error = [&](const std::string& fields, int status) {
    const Json json = send(fields, status);
    EXPECT_EQ(json["type"], "error");
    EXPECT_EQ(json["request_id"], "req-t");
    EXPECT_EQ(json.size(), 3u);
    return json["error"]["type"].get<std::string>() + ": " + json["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(error(hi, 400), "invalid_request_error: You must provide a max_tokens parameter.");
  EXPECT_EQ(error(R"("max_tokens":5)", 400), "invalid_request_error: You must provide a messages parameter.");
  EXPECT_EQ(error(hi + R"(,"max_tokens":5,"tools":[{"name":"f"}])", 400),
            "invalid_request_error: 'tools' is not supported: tool calls are not parsed out of answers.");
  EXPECT_EQ(error(R"("max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}])", 400),
            "invalid_request_error: Invalid value for 'messages[0].content[0].type': only text is supported, not "
            "'image'.");
  EXPECT_EQ(error(R"("max_tokens":5,"messages":[{"role":"tool","content":"x"}])", 400),
            "invalid_request_error: Invalid value for 'messages[0].role': expected user, assistant or system.");
  EXPECT_EQ(error(R"("max_tokens":5,"model":"none",)" + hi, 404),
            "not_found_error: The model `none` does not exist or you do not have access to it.");
  engine.queue_limit = 0;
  EXPECT_EQ(error(hi + R"(,"max_tokens":5)", 429), "rate_limit_error: the request queue is full");

  const auto form = [&](const HttpResponse& response) {
    return Json::parse(response.body)["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(form(answer("GET", "/v1/messages")), "invalid_request_error");
  EXPECT_EQ(form(answer("POST", "/v1/messages/batches", "{}")), "not_found_error");
  EXPECT_EQ(form(answer("POST", "/v1/messages", "{}", {{"content-type", "text/plain"}})), "invalid_request_error");
  routes.drain();
  EXPECT_EQ(form(answer("POST", "/v1/messages", "{}")), "overloaded_error");
}

TEST_F(MessagesTest, AnErrorEndsTheStream) {
  engine.error_text = "the step failed";
  const auto events =
      namedEvents(answer("POST", "/v1/messages", R"({"model":"base","max_tokens":3,"stream":true,)" + hi + "}").body);
  const auto& [name, data] = events.back();
  EXPECT_EQ(name, "error");
  EXPECT_EQ(data, (Json{{"type", "error"},
                        {"error", {{"type", "api_error"}, {"message", "the step failed"}}},
                        {"request_id", "req-t"}}));
}

TEST(AnthropicErrors, EveryStatusHasAType) {
  const auto type = [](int status) {
    const ApiError error(status, "m", "t", std::nullopt, std::nullopt);
    return Json::parse(error.body(errorFormFor("/v1/messages", "r")))["error"]["type"].get<std::string>();
  };
  const std::pair<int, const char*> types[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
      {404, "not_found_error"},       {408, "invalid_request_error"}, {409, "api_error"},
      {413, "request_too_large"},     {429, "rate_limit_error"},      {500, "api_error"},
      {503, "overloaded_error"},      {504, "timeout_error"}};
  for (const auto& [status, name] : types) EXPECT_EQ(type(status), name) << status;
  EXPECT_EQ(errorFormFor("/v1/messagesx", "r").api, ErrorForm::Api::kOpenAi);
}

}  // namespace
}  // namespace chorus::server
