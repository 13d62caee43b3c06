#include "server/openai/responses.h"

#include <gtest/gtest.h>

#include "server/testing/named_events.h"
#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

class ResponsesTest : public RoutesTest {
 protected:
  Json respond(const std::string& fields, int status = 200) {
    const auto response = answer("POST", "/v1/responses", R"({"model":"base",)" + fields + "}");
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
  // The text of the prompt that the engine got last.
  std::string promptSeen() { return codec->decode(engine.seen.back().getInputTokenIds(), true); }
};

TEST_F(ResponsesTest, AWholeAnswer) {
  engine.cached_tokens = 2;
  const Json json =
      respond(R"("input":"hi","max_output_tokens":4,"temperature":0.5,"metadata":{"k":"v"},"store":true)");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "incomplete") << "the tokens were used up";
  EXPECT_EQ(json["incomplete_details"], (Json{{"reason", "max_output_tokens"}}));
  EXPECT_EQ(json["model"], "base");
  EXPECT_EQ(json["output"].size(), 1u);
  EXPECT_EQ(json["output"][0]["role"], "assistant");
  EXPECT_EQ(json["output"][0]["content"][0]["type"], "output_text");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "user");
  EXPECT_EQ(json["usage"]["input_tokens"], 8);
  EXPECT_EQ(json["usage"]["input_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(json["usage"]["output_tokens"], 4);
  EXPECT_EQ(json["usage"]["total_tokens"], 12);
  EXPECT_EQ(json["temperature"], 0.5);
  EXPECT_EQ(json["metadata"], (Json{{"k", "v"}}));
  EXPECT_EQ(json["store"], false) << "nothing is kept";
  const Json stopped = respond(R"("input":"hi","stop":"r:")");
  EXPECT_EQ(stopped["status"], "completed");
  EXPECT_TRUE(stopped["incomplete_details"].is_null());
  EXPECT_EQ(stopped["output"][0]["content"][0]["text"], "use");
}

TEST_F(ResponsesTest, ItemsAndInstructionsBecomeMessages) {
  respond(R"("max_output_tokens":1,"instructions":"be brief","input":[
      {"role":"developer","content":"in rhyme"},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
      {"type":"message","id":"msg_1","status":"completed","role":"assistant",
       "content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]}]},
      {"role":"user","content":"d"}])");
  EXPECT_EQ(promptSeen(), "system:be brief\nin rhyme;user:a\nb;assistant:c;user:d;");
  respond(R"("max_output_tokens":1,"input":[{"role":"user","content":"a"},{"role":"user","content":"b"}])");
  EXPECT_EQ(promptSeen(), "user:a;user:b;") << "as in a chat";
}

TEST_F(ResponsesTest, WhatNeedsStateOrToolsIsRefusedByName) {
  const auto refused = [&](const std::string& fields) {
    const Json error = respond(fields, 400)["error"];
    return error["param"].get<std::string>() + " " + error["code"].get<std::string>();
  };
  EXPECT_EQ(refused(R"("input":"hi","previous_response_id":"resp_1")"), "previous_response_id unsupported_parameter");
  EXPECT_EQ(refused(R"("input":"hi","background":true)"), "background unsupported_parameter");
  EXPECT_EQ(refused(R"("input":"hi","conversation":"c")"), "conversation unsupported_parameter");
  EXPECT_EQ(refused(R"("input":"hi","tools":[{"type":"web_search"}])"), "tools unsupported_parameter");
  EXPECT_EQ(refused(R"("input":"hi","text":{"format":{"type":"json_object"}})"), "text.format unsupported_parameter");
  EXPECT_EQ(refused(R"("input":"hi","max_tokens":5)"), "max_tokens unsupported_parameter");
  EXPECT_EQ(refused(R"("input":[{"type":"function_call_output","call_id":"x","output":"y"}])"),
            "input[0].type invalid_value");
  EXPECT_EQ(refused(R"("input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}])"),
            "input[0].content[0].type invalid_value");
  EXPECT_EQ(refused(R"("input":[])"), "input invalid_value");
  EXPECT_EQ(refused(R"("instructions":"x")"), "input missing_required_parameter");
  EXPECT_EQ(refused(R"("input":")" + std::string(300, 'x') + "\""), "input context_length_exceeded");
  EXPECT_EQ(refused(R"("input":"hi","max_output_tokens":999)"), "max_output_tokens context_length_exceeded");
  EXPECT_EQ(
      respond(
          R"("input":"hi","max_output_tokens":1,"text":{"format":{"type":"text"}},"tools":[],"include":[])")["status"],
      "incomplete");
}

TEST_F(ResponsesTest, AStreamHasAllEventsInOrder) {
  const auto response =
      answer("POST", "/v1/responses", R"({"model":"shift","input":"hi","max_output_tokens":3,"stream":true})");
  EXPECT_EQ(response.content_type, "text/event-stream; charset=utf-8");
  const auto events = namedEvents(response.body);
  std::vector<std::string> types;
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [name, data] = events[i];
    types.push_back(name);
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["sequence_number"], i);
    if (name == "response.output_text.delta") text += data["delta"].get<std::string>();
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                             "response.content_part.added", "response.output_text.delta",
                                             "response.output_text.delta", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.incomplete"}));
  EXPECT_EQ(text, "vtf");
  EXPECT_EQ(events[0].second["response"]["status"], "in_progress");
  const std::string item = events[2].second["item"]["id"];
  for (size_t i = 3; i < 9; ++i) EXPECT_EQ(events[i].second["item_id"], item);
  EXPECT_EQ(events[7].second["text"], text);
  EXPECT_EQ(events[8].second["part"]["text"], text);
  EXPECT_EQ(events[9].second["item"]["content"][0]["text"], text);
  const Json& last = events[10].second["response"];
  EXPECT_EQ(last["output"][0], events[9].second["item"]);
  EXPECT_EQ(last["id"], events[0].second["response"]["id"]);
  EXPECT_EQ(last["usage"]["output_tokens"], 3);
  EXPECT_EQ(last["model"], "shift");
}

TEST_F(ResponsesTest, LogProbabilitiesOfAWholeAnswer) {
  const Json json =
      respond(R"("input":"hi","max_output_tokens":3,"include":["message.output_text.logprobs"],"top_logprobs":2,)"
              R"("metadata":{"k":"logprobs"})");
  EXPECT_EQ(json["top_logprobs"], 2);
  const Json& tokens = json["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0], (Json{{"token", "u"},
                             {"logprob", -0.5},
                             {"bytes", {117}},
                             {"top_logprobs",
                              {{{"token", "u"}, {"logprob", -0.5}, {"bytes", {117}}},
                               {{"token", "v"}, {"logprob", -1.5}, {"bytes", {118}}}}}}));
  EXPECT_EQ(respond(R"("input":"hi","max_output_tokens":1,"top_logprobs":0)")["output"][0]["content"][0]["logprobs"],
            Json::array());
  EXPECT_EQ(respond(R"("input":"hi","max_output_tokens":1,"include":["message.output_text.logprobs"])")
                ["output"][0]["content"][0]["logprobs"][0]["top_logprobs"],
            Json::array());
  const Json error = respond(R"("input":"hi","top_logprobs":2)", 400)["error"];
  EXPECT_EQ(error["param"], "top_logprobs") << "it needs include";
  EXPECT_EQ(respond(R"("input":"hi","include":["file_search_call.results"])", 400)["error"]["param"], "include");
}

TEST_F(ResponsesTest, LogProbabilitiesOfAStreamComeWithTheirText) {
  const auto response = answer("POST", "/v1/responses",
                               R"({"model":"base","input":"hi","max_output_tokens":9,"stream":true,"stop":"r:",)"
                               R"("include":["message.output_text.logprobs"],"top_logprobs":1})");
  Json sent = Json::array(), done, part, item, whole;
  for (const auto& [name, data] : namedEvents(response.body)) {
    if (name == "response.output_text.delta") {
      for (const Json& token : data["logprobs"]) sent.push_back(token);
    } else if (name == "response.content_part.added") {
      EXPECT_EQ(data["part"]["logprobs"], Json::array());
    } else if (name == "response.output_text.done") {
      done = data["logprobs"];
    } else if (name == "response.content_part.done") {
      part = data["part"]["logprobs"];
    } else if (name == "response.output_item.done") {
      item = data["item"]["content"][0]["logprobs"];
    } else if (name == "response.completed") {
      whole = data["response"]["output"][0]["content"][0]["logprobs"];
    }
  }
  ASSERT_EQ(sent.size(), 5u) << "also of the stop string";
  EXPECT_EQ(sent[0]["token"], "u");
  EXPECT_EQ(sent[4]["token"], ":");
  EXPECT_EQ(sent[0]["top_logprobs"].size(), 1u);
  for (const Json& list : {done, part, item, whole}) EXPECT_EQ(list, sent);
  EXPECT_EQ(response.body.find("logprobs_"), std::string::npos) << "no placeholder";
}

TEST_F(ResponsesTest, AnErrorEndsTheStream) {
  engine.error_text = "the step failed";
  const auto events = namedEvents(
      answer("POST", "/v1/responses", R"({"model":"base","input":"hi","max_output_tokens":3,"stream":true})").body);
  const auto& [name, data] = events.back();
  EXPECT_EQ(name, "response.failed");
  EXPECT_EQ(data["response"]["status"], "failed");
  EXPECT_EQ(data["response"]["error"], (Json{{"code", "server_error"}, {"message", "the step failed"}}));
  EXPECT_EQ(respond(R"("input":"hi","max_output_tokens":3)", 500)["error"]["message"], "the step failed");
}

TEST_F(ResponsesTest, MetadataWithinOpenAisLimitsIsRepeated) {
  const auto with = [](const Json& metadata) {
    return R"("max_output_tokens":1,"input":"a","metadata":)" + metadata.dump();
  };
  const Json longest{{std::string(64, 'k'), std::string(512, 'v')}};
  EXPECT_EQ(respond(with(longest))["metadata"], longest);
  Json many = Json::object();
  for (int i = 0; i < 17; ++i) many[std::to_string(i)] = "v";
  for (const Json& other : {Json{{"a", Json::array({1, 1})}}, Json{{std::string(65, 'k'), "v"}},
                            Json{{"k", std::string(513, 'v')}}, many, Json::array({"a"})}) {
    EXPECT_EQ(respond(with(other))["metadata"], Json::object()) << other.dump().substr(0, 40);
  }
}

TEST_F(ResponsesTest, InstructionsWithoutTextAreNone) {
  respond(R"("max_output_tokens":1,"instructions":"","input":"hi")");
  EXPECT_EQ(promptSeen(), "user:hi;");
  EXPECT_EQ(respond(R"("input":[{"role":"system","content":""}])", 400)["error"]["param"], "input");
}

}  // namespace
}  // namespace chorus::server
