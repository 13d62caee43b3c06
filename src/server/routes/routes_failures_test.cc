// Requests that the routes refuse, that the engine fails, and whose clients disconnect.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/json.h"
#include "server/testing/held_intake.h"
#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

TEST_F(RoutesTest, LoadingAndDrainingAre503) {
  Routes fresh;
  const auto ask = [&](const std::string& method, const std::string& path) {
    auto exchange = std::make_shared<FakeExchange>();
    fresh.handle({.method = method, .path = path, .headers = {{"content-type", "application/json"}}, .body = "{}"},
                 exchange);
    return exchange->wait().status;
  };
  EXPECT_EQ(ask("GET", "/v1/health/live"), 200);
  EXPECT_EQ(ask("GET", "/v1/health/ready"), 503);
  EXPECT_EQ(ask("GET", "/health"), 503);
  EXPECT_EQ(ask("GET", "/ping"), 503);
  EXPECT_EQ(ask("GET", "/version"), 200);
  EXPECT_EQ(ask("POST", "/v1/completions"), 503);
  routes.leave();
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 503);
  EXPECT_EQ(answer("GET", "/health").status, 503);
  EXPECT_EQ(answer("GET", "/ping").status, 503);
  EXPECT_EQ(answer("GET", "/v1/health/live").status, 200);
  EXPECT_EQ(answer("GET", "/v1/models").status, 200);
  EXPECT_EQ(completion(R"("prompt":[97])")["object"], "text_completion");
  routes.drain();
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 503);
  EXPECT_EQ(answer("POST", "/v1/chat/completions", "{}").status, 503);
}

TEST_F(RoutesTest, WhatCannotBeComposedIsRefusedByName) {
  const auto refused = [&](const std::string& model, const std::string& terms, int status) {
    const auto response =
        answer("POST", "/v1/completions", R"({"model":")" + model + R"(","prompt":[97],"adapters":)" + terms + "}");
    EXPECT_EQ(response.status, status) << response.body;
    const Json error = Json::parse(response.body)["error"];
    return error["param"].get<std::string>() + ": " + error["message"].get<std::string>();
  };
  const std::string shift = R"([{"name":"shift","weight":1}])";
  EXPECT_EQ(refused("base", R"([{"name":"shift","weight":1},{"name":"none","weight":1}])", 404),
            "model: The model `none` does not exist or you do not have access to it.");
  EXPECT_EQ(refused("none", shift, 404), "model: The model `none` does not exist or you do not have access to it.");
  EXPECT_EQ(refused("shift", shift, 400).substr(0, 61),
            "adapters: With 'adapters', 'model' must be the base model, `b");
  EXPECT_EQ(refused("base", R"([{"name":"base","weight":1}])", 400).substr(0, 17), "adapters[0].name:");
}

TEST_F(RoutesTest, ChatTemplateRefusalHidesPaths) {
  const Json json = chat(R"("messages":[{"role":"raise","content":"hi"}])", 400);
  EXPECT_EQ(json["error"]["message"], "template: roles must alternate");
  EXPECT_EQ(json["error"]["param"], "messages");
}

TEST_F(RoutesTest, DevelopersAreSystemUnlessTheTemplateKnowsThem) {
  const auto prompt = [&](const std::string& messages, const std::string& fields = "") {
    const std::string text =
        chat("\"messages\":[" + messages + "],\"max_tokens\":99" + fields)["choices"][0]["message"]["content"];
    return text.substr(0, text.find(";end:") + 1);
  };
  const std::string end = R"(,{"role":"end","content":"x"})";
  const std::string rules = R"({"role":"system","content":"a","name":"n"},{"role":"developer","content":"b"})";
  EXPECT_EQ(prompt(rules + end), "system:a\nb;");
  EXPECT_EQ(prompt(rules + end, R"(,"chat_template":"tool_use")"), "[tool_use]system:a;developer:b;");
  EXPECT_EQ(prompt(R"({"role":"developer","content":[{"type":"text","text":"a"}]},{"role":"user","content":"b"},)"
                   R"({"role":"developer","content":""},{"role":"developer","content":"c"})" +
                   end),
            "system:a;user:b;system:;system:c;");
  EXPECT_EQ(prompt(R"({"role":"developer","content":""})" + end), "system:;");
  EXPECT_EQ(
      prompt(R"({"role":"system","content":""},{"role":"developer","content":""},{"role":"user","content":"b"})" + end),
      "system:;system:;user:b;");
  EXPECT_EQ(prompt(R"({"role":"system","content":"a"},{"role":"system","content":"b"})" + end), "system:a;system:b;")
      << "without the role developer nothing changes";
  const std::string call = R"("tool_calls":[{"function":{"name":"f"}}])";
  EXPECT_EQ(prompt(R"({"role":"system",)" + call + R"(},{"role":"developer",)" + call + "}," + rules + end),
            "system:;system:;system:a\nb;")
      << "messages without text";
}

TEST_F(RoutesTest, TemplatesOfRequestsNeedTrust) {
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}],"max_tokens":1,)";
  for (const char* field : {R"("chat_template":"{{ x }}")", R"("chat_template_kwargs":{"chat_template":"{{ x }}"})"}) {
    const Json refused = chat(messages + field, 403);
    EXPECT_EQ(refused["error"]["param"], "chat_template");
    EXPECT_NE(refused["error"]["message"].get<std::string>().find("--trust_request_templates"), std::string::npos);
  }
  chat(messages + R"("chat_template":"tool_use")");
  chat(messages + R"("chat_template":"tool_use","chat_template_kwargs":{"chat_template":"tool_use"})", 400);
  context->trust_request_templates = true;
  const Json trusted = chat(R"("messages":[{"role":"user","content":"hi"}],"max_tokens":4,"chat_template":"abc")");
  EXPECT_EQ(trusted["choices"][0]["message"]["content"], "[abc");
}

// With many thousands of adapters a list takes a second.
TEST_F(RoutesTest, RequestsDoNotWaitForLists) {
  HeldIntake lists(list_intake);
  const auto list = send("GET", "/v1/models");
  EXPECT_EQ(answer("POST", "/v1/completions", R"({"model":"base","prompt":"x","max_tokens":2})").status, 200);
  EXPECT_FALSE(list->done());
  lists.release();
  EXPECT_EQ(list->wait().status, 200);
}

TEST_F(RoutesTest, WorkAndTimeOfTheIntakeAreLimited) {
  Intake poor{IntakeOptions{.threads = 1, .work_limit = 1000}},
      late{IntakeOptions{.threads = 1, .timeout = std::chrono::milliseconds(0)}};
  const std::string prompt = "{\"model\":\"base\",\"prompt\":\"" + std::string(100'000, 'x') + "\"}";
  const auto ask = [&](Intake& with) {
    auto other = std::make_shared<ApiContext>(ApiContext{engine, models, with, with, with, delivery, {}, {}});
    routes.serve(other);
    return answer("POST", "/v1/completions", prompt);
  };
  const HttpResponse dear = ask(poor);
  EXPECT_EQ(dear.status, 400);
  EXPECT_EQ(Json::parse(dear.body)["error"]["code"], "work_limit_exceeded");
  const HttpResponse slow = ask(late);
  EXPECT_EQ(slow.status, 504);
  EXPECT_EQ(Json::parse(slow.body)["error"]["code"], "timeout");
  routes.serve(context);
}

TEST_F(RoutesTest, ParsedRequestsAreChargedToTheClient) {
  std::string nested = "[]";
  for (int i = 0; i < 20'000; ++i) nested += ",[]";
  const std::string wide = "{\"model\":\"base\",\"prompt\":\"x\",\"other\":[" + nested + "]}";
  EXPECT_EQ(answer("POST", "/v1/completions", wide).status, 400) << "more than the client's share in any case";
  endRequests();
  ClientCharge held(client);
  ASSERT_EQ(held.resize(3 << 20), MemoryAnswer::kGranted);
  const std::string text = "{\"model\":\"base\",\"prompt\":\"" + std::string(200'000, 'x') + "\"}";
  EXPECT_EQ(answer("POST", "/v1/completions", text).status, 429);
  EXPECT_EQ(answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})").status, 200)
      << "a small one has room";
  held.release();
  EXPECT_EQ(answer("POST", "/v1/completions", text).status, 400) << "too long, which is another matter";
  endRequests();
}

TEST_F(RoutesTest, AWholeAnswerIsBoundedByTheClientsShare) {
  context->max_choices = 64;
  const std::string much =
      R"("messages":[{"role":"user","content":"x"}],"n":64,"max_tokens":200,"logprobs":true,"top_logprobs":20)";
  const Json refused = chat(much, 429);
  EXPECT_EQ(refused["error"]["code"], "overloaded");
  EXPECT_TRUE(eventually([&] { return engine.running() == 0; }));
  endRequests();
  chat(R"("messages":[{"role":"user","content":"x"}],"n":2,"max_tokens":20,"logprobs":true,"top_logprobs":20)");
}

TEST_F(RoutesTest, AClientThatLeavesFreesItsPlaceInTheIntake) {
  HeldIntake requests(intake);
  auto exchange = send("POST", "/v1/completions", R"({"model":"base","prompt":"x"})");
  const std::weak_ptr<FakeExchange> alive = exchange;
  exchange->disconnect();
  exchange.reset();
  EXPECT_TRUE(alive.expired()) << "freed although the only worker is busy";
  requests.release();
}

TEST_F(RoutesTest, Refusals) {
  const auto unknown = answer("POST", "/v1/completions", R"({"model":"nobody","prompt":"x"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(Json::parse(unknown.body)["error"]["message"],
            "The model `nobody` does not exist or you do not have access to it.");
  EXPECT_EQ(completion(R"("prompt":[258])", 400)["error"]["param"], "prompt");
  const Json too_long = completion(R"("prompt":")" + std::string(300, 'x') + "\"", 400);
  EXPECT_EQ(too_long["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(completion(R"("prompt":[97],"max_tokens":256)", 400)["error"]["code"], "context_length_exceeded");
  engine.queue_limit = 3;
  const auto full = answer("POST", "/v1/completions", R"({"model":"base","prompt":"x","n":4,"max_tokens":200})");
  EXPECT_EQ(full.status, 429);
  EXPECT_TRUE(engine.seen.empty()) << "all choices have room in the queue, or none is enqueued";
  EXPECT_EQ(engine.cancelled, 0);
}

TEST_F(RoutesTest, EngineErrors) {
  using Code = executor::ResponseErrorCode;
  const auto fails = [&](const char* text, Code code, std::optional<executor::AdapterFault> fault = std::nullopt) {
    engine.failFromNow(text, code, std::move(fault));
    return answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})");
  };
  const auto busy = fails("PEFT Cache is full. Could not store taskId=1", Code::kBUSY);
  EXPECT_EQ(busy.status, 429);
  EXPECT_THAT(busy.headers, ::testing::Contains(::testing::Pair("retry-after-ms", "500")));
  EXPECT_EQ(Json::parse(busy.body)["error"]["code"], "adapter_cache_full");
  EXPECT_THAT(std::string(Json::parse(busy.body)["error"]["message"]), ::testing::HasSubstr("NIM_MAX_CPU_LORAS"));
  engine.error_code = Code::kTOO_LARGE;
  EXPECT_EQ(completion(R"("prompt":"x")", 400)["error"]["code"], "adapter_too_large");
  EXPECT_EQ(fails("std::bad_alloc", Code::kEXHAUSTED).status, 503);
  const auto replaced = fails("Error storing task=1 in PEFT cache -- replaced", Code::kCONFLICT,
                              executor::AdapterFault{1, "replaced", true});
  EXPECT_EQ(replaced.status, 409);
  EXPECT_EQ(Json::parse(replaced.body)["error"]["message"], "replaced");
  engine.failFromNow("LoRA task 1 not found in cache. Please send LoRA weights with request", Code::kNOT_FOUND);
  EXPECT_EQ(completion(R"("prompt":"x")", 404)["error"]["code"], "model_not_found");
  EXPECT_EQ(fails("Encountered an error in forwardAsync function: /srv/x: gone", Code::kINTERNAL).status, 500);
  engine.failFromNow("token 5 is unknown, see /srv/x/tokens", Code::kINVALID_ARGUMENT);
  EXPECT_EQ(completion(R"("prompt":"x")", 400)["error"]["message"], "token 5 is unknown, see tokens");
}

TEST_F(RoutesTest, AnAdapterThatCannotBeLoadedIsNamed) {
  using Code = executor::ResponseErrorCode;
  const auto fails = [&](const char* reason, Code code) {
    engine.failFromNow("in the executor's words", code, executor::AdapterFault{1, reason, true});
    const auto response = answer("POST", "/v1/completions", R"({"model":"shift","prompt":"x"})");
    const Json error = Json::parse(response.body)["error"];
    return fmt::format("{} {} {} {}", response.status, error["param"].dump(), error["code"].dump(),
                       error["message"].get<std::string>());
  };
  const char* const refusal =
      R"(400 "model" "adapter_refused" The adapter 'shift' cannot be served: m.bin: not finite)";
  for (const Code code : {Code::kCORRUPT, Code::kINVALID_ARGUMENT, Code::kUNSUPPORTED}) {
    EXPECT_EQ(fails("/srv/x/m.bin: not finite", code), refusal);
  }
  EXPECT_EQ(fails("/srv/x/m.bin: cannot be read", Code::kINTERNAL),
            R"(500 null "internal_error" The adapter 'shift' could not be loaded: m.bin: cannot be read)");
}

// A client retries by the status, which a stream that has begun cannot have any more.
TEST_F(RoutesTest, AnAdaptersStreamThatFailsBeforeItsFirstTokenHasTheStatusOfItsError) {
  using Code = executor::ResponseErrorCode;
  engine.fails_at_once = true;
  engine.failFromNow("PEFT Cache is full. Could not store taskId=1", Code::kBUSY);
  const std::pair<const char*, const char*> bodies[] = {
      {"/v1/completions", R"({"model":"shift","prompt":"x","stream":true})"},
      {"/v1/chat/completions", R"({"model":"shift","messages":[{"role":"user","content":"x"}],"stream":true})"},
      {"/v1/responses", R"({"model":"shift","input":"x","stream":true})"},
      {"/v1/messages", R"({"model":"shift","messages":[{"role":"user","content":"x"}],"max_tokens":9,"stream":true})"}};
  for (const auto& [path, body] : bodies) {
    const auto refused = answer("POST", path, body);
    EXPECT_EQ(refused.status, 429) << path;
    EXPECT_THAT(refused.headers, ::testing::Contains(::testing::Pair("retry-after-ms", "500"))) << path;
    EXPECT_TRUE(Json::parse(refused.body).contains("error")) << path;
  }
}

TEST_F(RoutesTest, EngineErrorsOfACompositionNameItsAdapter) {
  using Code = executor::ResponseErrorCode;
  models.putAdapter({.name = "first", .adapter_id = 7, .text = codec});
  models.putAdapter({.name = "second", .adapter_id = 17, .text = codec});
  const auto fails = [&](executor::AdapterFault fault, Code code) {
    engine.failFromNow("in the executor's words", code, std::move(fault));
    const auto response = answer("POST", "/v1/completions",
                                 R"({"model":"base","prompt":"x","adapters":[{"name":"first","weight":1},)"
                                 R"({"name":"second","weight":1}]})");
    const Json error = Json::parse(response.body)["error"];
    EXPECT_EQ(error["param"], response.status == 400   ? Json("adapters")
                              : response.status == 404 ? Json("model")
                                                       : Json());
    return std::to_string(response.status) + " " + error["message"].get<std::string>();
  };
  EXPECT_EQ(fails({17, "/srv/second/adapter_config.json: gone", true}, Code::kNOT_FOUND),
            "404 The model `second` does not exist or you do not have access to it.");
  EXPECT_EQ(fails({7, "/srv/first/adapter_model.bin: bad", true}, Code::kCORRUPT),
            "400 The adapter 'first' cannot be served: adapter_model.bin: bad");
  EXPECT_THAT(fails({17, "does not fit"}, Code::kBUSY),
              ::testing::AllOf(::testing::StartsWith("429 "), ::testing::HasSubstr("the adapter `second`")));
  EXPECT_EQ(fails({17, "uses DoRA"}, Code::kUNSUPPORTED), "400 The adapter 'second' uses DoRA.");
  EXPECT_EQ(fails({70, "gone", true}, Code::kNOT_FOUND),
            "404 The model `base` does not exist or you do not have access to it.");
}

TEST_F(RoutesTest, AStreamThatFailsLaterEndsWithTheError) {
  engine.most_tokens = 1;
  const auto stream = send("POST", "/v1/completions", R"({"model":"base","prompt":"x","stream":true,"max_tokens":9})");
  EXPECT_TRUE(eventually([&] { return stream->streaming(); }));
  engine.failFromNow("token 5 is unknown", executor::ResponseErrorCode::kINVALID_ARGUMENT);
  engine.most_tokens = 9;
  const auto response = stream->wait();
  EXPECT_EQ(response.status, 200) << "the head of the stream was sent before the error";
  const std::string end =
      R"(data: {"error":{"message":"token 5 is unknown","type":"invalid_request_error","param":null,"code":null}})"
      "\n\ndata: [DONE]\n\n";
  EXPECT_TRUE(response.body.ends_with(end)) << response.body;
  EXPECT_EQ(response.body.find("finish_reason\":\"length"), std::string::npos) << "it did not fail while it ran";
}

TEST_F(RoutesTest, DisconnectStopsTheEngine) {
  engine.most_tokens = 1;  // so no request ends by itself
  for (const char* stream : {"true", "false"}) {
    const auto exchange =
        send("POST", "/v1/completions",
             std::string(R"({"model":"base","prompt":"x","n":3,"max_tokens":9,"stream":)") + stream + "}");
    EXPECT_TRUE(eventually([&] { return engine.running() == 3; }));
    exchange->disconnect();
    EXPECT_TRUE(eventually([&] { return engine.running() == 0; }));
  }
  EXPECT_EQ(engine.cancelled, 6);
}

}  // namespace
}  // namespace chorus::server
