#include "server/openai/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "base/json.h"
#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

Json usageOf(int64_t prompt, int64_t completion, int64_t cached = 0) {
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

TEST_F(RoutesTest, ModelsInNimShape) {
  const Json list = Json::parse(answer("GET", "/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  const Json& adapter = list["data"][1];
  EXPECT_EQ(adapter["id"], "shift");
  EXPECT_EQ(adapter["root"], "base");
  EXPECT_TRUE(adapter["parent"].is_null());
  EXPECT_EQ(adapter["owned_by"], "vllm");
  EXPECT_EQ(adapter["created"], 8);
  EXPECT_EQ(adapter["permission"][0]["object"], "model_permission");
  EXPECT_EQ(Json::parse(answer("GET", "/v1/models/sh%69ft").body)["id"], "shift");
  const auto missing = answer("GET", "/v1/models/none");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Json::parse(missing.body)["error"]["code"], "model_not_found");
}

TEST_F(RoutesTest, PathsMethodsAndTypes) {
  EXPECT_EQ(answer("GET", "/v1/health/live").status, 200);
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 200);
  EXPECT_EQ(answer("GET", "/v1/version").status, 200);
  EXPECT_EQ(answer("GET", "/v2").status, 404);
  EXPECT_EQ(answer("GET", "//").status, 404);
  EXPECT_EQ(answer("GET", "/v1/completions").status, 405);
  EXPECT_EQ(answer("POST", "/v1/models", "{}").status, 405);
  EXPECT_EQ(answer("POST", "/v1/completions", "{}", {{"content-type", "text/plain"}}).status, 415);
  EXPECT_EQ(answer("POST", "/v1/completions", "{}", {{"content-encoding", "gzip"}}).status, 415);
  EXPECT_EQ(answer("POST", "/v1/completions", "{}", {{"content-type", "Application/JSON ; charset=utf-8"}}).status,
            400);
  for (const char* type :
       {"", "text/plain", "text/plain+json", "application/x-www-form-urlencoded", "multipart/form-data",
        "application/json, text/plain", "application/jsonx", "json", "a/b application/x+json"}) {
    EXPECT_EQ(answer("POST", "/v1/completions", "{}", {{"content-type", type}}).status, 415) << type;
  }
  for (const char* type : {"application/json", "application/vnd.api+json"}) {
    EXPECT_EQ(answer("POST", "/v1/completions", "{}", {{"content-type", type}}).status, 400) << type;
  }
}

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
  EXPECT_EQ(ask("POST", "/v1/completions"), 503);
  routes.leave();
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 503);
  EXPECT_EQ(answer("GET", "/v1/health/live").status, 200);
  EXPECT_EQ(answer("GET", "/v1/models").status, 200);
  EXPECT_EQ(completion(R"("prompt":[97])")["object"], "text_completion");
  routes.drain();
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 503);
  EXPECT_EQ(answer("POST", "/v1/chat/completions", "{}").status, 503);
}

TEST_F(RoutesTest, CompletionShape) {
  const Json json = completion(R"("prompt":[97,98,99],"max_tokens":5)");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["model"], "base");
  EXPECT_EQ(json["system_fingerprint"], "fp_base");
  EXPECT_EQ(json["choices"][0]["text"], "abcab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(json["choices"][0]["stop_reason"].is_null());
  EXPECT_TRUE(json["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(json["usage"], usageOf(3, 5));
  EXPECT_EQ(completion(R"("prompt":[97])")["usage"]["completion_tokens"], 16);
}

TEST_F(RoutesTest, AdaptersAreComposedOnTheBase) {
  models.putAdapter({.name = "jump", .adapter_id = 4, .fingerprint = "fp_jump", .created = 9, .text = codec});
  const std::string terms = R"("adapters":[{"name":"jump","weight":0.5},{"name":"shift","weight":-1}],)";
  const Json json = completion(terms + R"("prompt":[97,98],"max_tokens":4)");
  EXPECT_EQ(json["choices"][0]["text"], "bcbc");
  EXPECT_EQ(json["model"], "base");
  const std::string fingerprint = json["system_fingerprint"];
  EXPECT_TRUE(fingerprint.starts_with("fp_"));
  EXPECT_EQ(completion(terms + R"("prompt":[97],"max_tokens":1)")["system_fingerprint"], fingerprint);
  const Json other = completion(R"("adapters":[{"name":"jump","weight":1.0}],"prompt":[97],"max_tokens":1)");
  EXPECT_NE(other["system_fingerprint"], fingerprint);
  EXPECT_EQ(other["choices"][0]["text"], "e");
  EXPECT_EQ(
      chat(terms + R"("messages":[{"role":"a","content":"b"}],"max_tokens":2)")["choices"][0]["message"]["content"],
      "b;");
  const auto stream = events(answer("POST", "/v1/completions",
                                    R"({"model":"base","stream":true,)" + terms + R"("prompt":[97],"max_tokens":1})")
                                 .body);
  EXPECT_EQ(stream.front()["choices"][0]["text"], "b");
  EXPECT_EQ(stream.front()["system_fingerprint"], fingerprint);
  EXPECT_EQ(completion(R"("adapters":null,"prompt":[97],"max_tokens":1)")["choices"][0]["text"], "a");
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

TEST_F(RoutesTest, PromptsTimesChoices) {
  const Json json = completion(R"("prompt":[[97,98],[120]],"max_tokens":2,"n":2,"echo":true)");
  ASSERT_EQ(json["choices"].size(), 4u);
  const char* expected[] = {"abab", "abab", "xxx", "xxx"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], expected[i]);
  }
  EXPECT_EQ(json["usage"], usageOf(3, 8));
}

TEST_F(RoutesTest, TheBestOfManyAreAnswered) {
  // FakeEngine's tokens have a log probability of -seed.
  const Json json = completion(R"("prompt":[[97],[98,99]],"max_tokens":2,"n":2,"best_of":5,"temperature":1,"seed":1,
                                  "echo":true)");
  EXPECT_EQ(engine.seen.size(), 10u);
  ASSERT_EQ(json["choices"].size(), 4u);
  const char* expected[] = {"aaa", "aaa", "bcbc", "bcbc"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], expected[i]);
    EXPECT_TRUE(json["choices"][i]["logprobs"].is_null());
  }
  EXPECT_EQ(json["usage"]["completion_tokens"], 20) << "what was generated is counted";
  const Json scored =
      completion(R"("prompt":[97],"max_tokens":2,"n":2,"best_of":4,"temperature":1,"seed":18446744073709551614,
                                    "logprobs":0)",
                 400);
  EXPECT_EQ(scored["error"]["param"], "seed");
  const Json ranked =
      completion(R"("prompt":[97],"max_tokens":2,"n":2,"best_of":4,"temperature":1,"seed":-2,"logprobs":0)");
  EXPECT_EQ(ranked["choices"][0]["logprobs"]["token_logprobs"][0], 0.0);
  EXPECT_EQ(ranked["choices"][1]["logprobs"]["token_logprobs"][0], -1.0);
}

TEST_F(RoutesTest, SamplingReachesTheEngine) {
  completion(R"("prompt":[97],"max_tokens":1,"temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.5,"seed":40,"n":2)");
  ASSERT_EQ(engine.seen.size(), 2u);
  const auto& sampling = engine.seen[1].getSamplingConfig();
  EXPECT_FLOAT_EQ(*sampling.getTemperature(), 0.5f);
  EXPECT_FLOAT_EQ(*sampling.getTopP(), 0.25f);
  EXPECT_EQ(sampling.getTopK(), 7);
  EXPECT_FLOAT_EQ(*sampling.getMinP(), 0.5f);
  EXPECT_EQ(engine.seen[0].getSamplingConfig().getSeed(), 40u);
  EXPECT_EQ(sampling.getSeed(), 41u);
  completion(R"("prompt":[97],"max_tokens":1)");
  EXPECT_EQ(engine.seen[2].getSamplingConfig().getTopK(), 1) << "greedy by the model's defaults";
  EXPECT_EQ(engine.seen[2].getEndId(), FakeCodec::kEnd);
  completion(R"("prompt":[97],"max_tokens":1,"ignore_eos":true,"stop_token_ids":[5])");
  EXPECT_EQ(engine.seen[3].getEndId(), 5);
}

TEST_F(RoutesTest, EndTokenAndStops) {
  Json json = completion(R"("prompt":[97,98,257],"max_tokens":9)");
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(json["choices"][0]["stop_reason"].is_null());
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  json = completion(R"("prompt":[97,98,257],"max_tokens":9,"stop_token_ids":[98],"ignore_eos":true)");
  EXPECT_EQ(json["choices"][0]["text"], "a");
  EXPECT_EQ(json["choices"][0]["stop_reason"], 98);
  json = completion(R"("prompt":[97,98,99,100],"max_tokens":100,"stop":["x","cd"])");
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["stop_reason"], "cd");
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
  EXPECT_EQ(engine.running(), 0u) << "the engine no longer works on it";
}

TEST_F(RoutesTest, AdapterIsChosenByName) {
  const auto response =
      answer("POST", "/v1/completions", R"({"model":"shift","prompt":[97],"max_tokens":3,"temperature":0})");
  const Json json = Json::parse(response.body);
  EXPECT_EQ(json["choices"][0]["text"], "bbb");
  EXPECT_EQ(json["model"], "shift");
  EXPECT_EQ(json["system_fingerprint"], "fp_adapter");
  EXPECT_EQ(engine.seen[0].getLoraConfig()->getTaskId(), 1u);
}

// The content may change after the catalog's entry was read, so an answer must have its own fingerprint.
TEST_F(RoutesTest, TheFingerprintIsOfTheAdapterThatAnswered) {
  engine.adapter_content = "0123456789abcdef";
  const auto whole = answer("POST", "/v1/completions", R"({"model":"shift","prompt":[97],"max_tokens":3})");
  EXPECT_EQ(Json::parse(whole.body)["system_fingerprint"], "fp_0123456789ab");
  const auto stream =
      answer("POST", "/v1/chat/completions",
             R"({"model":"shift","messages":[{"role":"user","content":"hi"}],"max_tokens":3,"stream":true})");
  for (const Json& chunk : events(stream.body)) EXPECT_EQ(chunk["system_fingerprint"], "fp_0123456789ab");
  const std::string terms = R"("adapters":[{"name":"shift","weight":1.0}],"prompt":[97],"max_tokens":1)";
  const std::string composed = completion(terms)["system_fingerprint"];
  EXPECT_NE(composed, "fp_0123456789ab");
  engine.adapter_content = "123456789abcdef0";
  EXPECT_NE(completion(terms)["system_fingerprint"], composed);
  EXPECT_EQ(completion(R"("prompt":[97],"max_tokens":1)")["system_fingerprint"], "fp_base");
}

TEST_F(RoutesTest, ChoicesOfOneAnswerAreOfOneContent) {
  engine.adapter_content = "0123456789abcdef";
  const std::string body = R"({"model":"shift","prompt":[97],"max_tokens":3,"n":2})";
  EXPECT_EQ(answer("POST", "/v1/completions", body).status, 200);
  engine.replaced_after = engine.seen.size() + 1;
  const auto refused = answer("POST", "/v1/completions", body);
  EXPECT_EQ(refused.status, 409);
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["type"], "conflict_error");
  EXPECT_EQ(error["message"], "`shift` was replaced while its choices were generated; send the request again.");
  EXPECT_EQ(engine.running(), 0u);
  EXPECT_EQ(answer("POST", "/v1/completions", body).status, 200) << "both of the new content";
}

TEST_F(RoutesTest, CompletionStream) {
  const auto response = answer("POST", "/v1/completions",
                               R"({"model":"base","prompt":"hey","max_tokens":4,"stream":true,"echo":true,
                                   "stream_options":{"include_usage":true}})");
  EXPECT_EQ(response.content_type, "text/event-stream; charset=utf-8");
  const auto chunks = events(response.body);
  std::string text;
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk["object"], "text_completion");
    EXPECT_EQ(chunk["id"], chunks[0]["id"]);
    if (!chunk["choices"].empty()) {
      text += chunk["choices"][0]["text"].get<std::string>();
      EXPECT_TRUE(chunk["usage"].is_null());
    }
  }
  EXPECT_EQ(text, "heyhey") << "echo, then what follows the begin token";
  const Json& last = chunks.back();
  EXPECT_TRUE(last["choices"].empty());
  EXPECT_EQ(last["usage"], usageOf(4, 4));
  EXPECT_EQ(chunks[chunks.size() - 2]["choices"][0]["finish_reason"], "length");
}

TEST_F(RoutesTest, ChatShapes) {
  const Json json = chat(R"("messages":[{"role":"user","content":"hi"}],"max_tokens":4)");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "user");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  const Json rest = chat(R"("messages":[{"role":"user","content":"hi"}])");
  EXPECT_EQ(rest["usage"]["total_tokens"], 256) << "without max_tokens: what fits";

  const auto chunks = events(answer("POST", "/v1/chat/completions",
                                    R"({"model":"base","messages":[{"role":"user","content":"hi"}],"max_tokens":4,
                                        "stream":true,"n":2})")
                                 .body);
  std::string text[2];
  int roles = 0;
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_FALSE(chunk.contains("usage"));
    const Json& choice = chunk["choices"][0];
    if (choice["delta"].contains("role")) ++roles;
    text[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
  }
  EXPECT_EQ(roles, 2);
  EXPECT_EQ(chunks[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(text[0], "user");
  EXPECT_EQ(text[1], "user");
}

TEST_F(RoutesTest, ChatTemplateRefusalHidesPaths) {
  const Json json = chat(R"("messages":[{"role":"raise","content":"hi"}])", 400);
  EXPECT_EQ(json["error"]["message"], "template: roles must alternate");
  EXPECT_EQ(json["error"]["param"], "messages");
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

TEST_F(RoutesTest, TheClientReachesTheEngine) {
  completion(R"("prompt":"a","max_tokens":1)");
  EXPECT_EQ(engine.seen.back().getClientId(), client->id());
}

TEST_F(RoutesTest, WorkAndTimeOfTheIntakeAreLimited) {
  Intake poor{IntakeOptions{.threads = 1, .work_limit = 1000}},
      late{IntakeOptions{.threads = 1, .timeout = std::chrono::milliseconds(0)}};
  const std::string prompt = "{\"model\":\"base\",\"prompt\":\"" + std::string(100'000, 'x') + "\"}";
  const auto ask = [&](Intake& with) {
    auto other = std::make_shared<ApiContext>(ApiContext{engine, models, with, delivery, {}, {}});
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
  ClientCharge held(client);
  ASSERT_EQ(held.resize(3 << 20), MemoryAnswer::kGranted);
  const std::string text = "{\"model\":\"base\",\"prompt\":\"" + std::string(200'000, 'x') + "\"}";
  EXPECT_EQ(answer("POST", "/v1/completions", text).status, 429);
  EXPECT_EQ(answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})").status, 200)
      << "a small one has room";
  held.release();
  EXPECT_EQ(answer("POST", "/v1/completions", text).status, 400) << "too long, which is another matter";
  EXPECT_EQ(clients->used(), 0u);
}

TEST_F(RoutesTest, AWholeAnswerIsBoundedByTheClientsShare) {
  context->max_choices = 64;
  const std::string much =
      R"("messages":[{"role":"user","content":"x"}],"n":64,"max_tokens":200,"logprobs":true,"top_logprobs":20)";
  const Json refused = chat(much, 429);
  EXPECT_EQ(refused["error"]["code"], "overloaded");
  for (int i = 0; i < 500 && (engine.running() > 0 || clients->used() > 0); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(engine.running(), 0u);
  EXPECT_EQ(clients->used(), 0u) << "what was kept is given back";
  chat(R"("messages":[{"role":"user","content":"x"}],"n":2,"max_tokens":20,"logprobs":true,"top_logprobs":20)");
}

TEST_F(RoutesTest, AClientThatLeavesFreesItsPlaceInTheIntake) {
  std::promise<void> begun, release;
  const auto gate = release.get_future().share();
  intake.submit(std::make_shared<Intake::Ticket>(), {.work = [&begun, gate](WorkMeter&) {
                  begun.set_value();
                  gate.wait();
                }});
  begun.get_future().wait();
  auto exchange = send("POST", "/v1/completions", R"({"model":"base","prompt":"x"})");
  const std::weak_ptr<FakeExchange> alive = exchange;
  exchange->disconnect();
  exchange.reset();
  EXPECT_TRUE(alive.expired()) << "freed although the only worker is busy";
  release.set_value();
}

TEST_F(RoutesTest, LogProbs) {
  Json json = completion(R"("prompt":[97,98],"logprobs":1,"max_tokens":2)");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"], (Json{"a", "b"}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["token_logprobs"], (Json{-0.5, -0.5}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["text_offset"], (Json{0, 1}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["top_logprobs"][1]["b"], -0.5);
  EXPECT_TRUE(completion(R"("prompt":[97],"logprobs":0)")["choices"][0]["logprobs"]["top_logprobs"].is_null());
  json = completion(R"("prompt":[97,206,177],"logprobs":2,"max_tokens":3)");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"], (Json{"a", "bytes:\\xce", "bytes:\\xb1"}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["text_offset"], (Json{0, 1, 2}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["top_logprobs"][0], (Json{{"a", -0.5}, {"b", -1.5}}));
  json = chat(R"("messages":[{"role":"user","content":"hi"}],"max_tokens":1,"logprobs":true)");
  const Json& entry = json["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "u");
  EXPECT_EQ(entry["bytes"], (Json{117}));
  EXPECT_TRUE(entry["top_logprobs"].empty());
  json = chat(R"("messages":[{"role":"user","content":"hi"}],"max_tokens":1,"logprobs":true,"top_logprobs":2)");
  const Json& top = json["choices"][0]["logprobs"]["content"][0]["top_logprobs"];
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[1], (Json{{"token", "v"}, {"bytes", {118}}, {"logprob", -1.5}}));
}

TEST_F(RoutesTest, EchoWithLogProbs) {
  const std::string fields = R"("prompt":"hey","logprobs":1,"max_tokens":2,"echo":true,"n":2)";
  const Json whole = completion(fields);
  const Json expected = {"<s>", "h", "e", "y", "<s>", "h"};
  for (const Json& choice : whole["choices"]) {
    EXPECT_EQ(choice["text"], "heyh");
    const Json& log_probs = choice["logprobs"];
    EXPECT_EQ(log_probs["tokens"], expected);
    EXPECT_EQ(log_probs["token_logprobs"], (Json{nullptr, -0.25, -0.25, -0.25, -0.5, -0.5}));
    EXPECT_EQ(log_probs["text_offset"], (Json{0, 0, 1, 2, 3, 3}));
    EXPECT_TRUE(log_probs["top_logprobs"][0].is_null());
    EXPECT_EQ(log_probs["top_logprobs"][1], (Json{{"h", -0.25}}));
  }
  std::string text[2];
  Json tokens[2] = {Json::array(), Json::array()}, offsets[2] = {Json::array(), Json::array()};
  const auto stream = answer("POST", "/v1/completions", R"({"model":"base","stream":true,)" + fields + "}");
  for (const Json& chunk : events(stream.body)) {
    const Json& choice = chunk["choices"][0];
    const auto index = choice["index"].get<size_t>();
    text[index] += choice["text"].get<std::string>();
    for (const Json& one : choice["logprobs"]["tokens"]) tokens[index].push_back(one);
    for (const Json& one : choice["logprobs"]["text_offset"]) offsets[index].push_back(one);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(text[i], "heyh");
    EXPECT_EQ(tokens[i], expected);
    EXPECT_EQ(offsets[i], (Json{0, 0, 1, 2, 3, 3}));
  }
}

TEST_F(RoutesTest, MaxTokensOfZeroScoresTheEchoedPrompt) {
  for (const char* prompt : {R"("prompt":"hey")", R"("prompt":[256,104,101,121])"}) {
    const Json json = completion(prompt + std::string(R"(,"logprobs":1,"max_tokens":0,"echo":true)"));
    const Json& choice = json["choices"][0];
    EXPECT_EQ(choice["text"], "hey");
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_TRUE(choice["stop_reason"].is_null());
    EXPECT_EQ(choice["logprobs"]["tokens"], (Json{"<s>", "h", "e", "y"}));
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], (Json{nullptr, -0.25, -0.25, -0.25}));
    EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), 4u);
    EXPECT_EQ(json["usage"], usageOf(4, 0));
  }
  const Json ended = completion(R"("prompt":[257,97],"logprobs":0,"max_tokens":0,"echo":true)");
  EXPECT_EQ(ended["choices"][0]["finish_reason"], "length") << "whatever the token is that is dropped";
  EXPECT_EQ(completion(R"("prompt":"hey","max_tokens":0,"echo":true)")["choices"][0]["text"], "hey");
  std::string text;
  Json tokens = Json::array();
  const auto stream =
      answer("POST", "/v1/completions",
             R"({"model":"base","stream":true,"prompt":"hey","logprobs":1,"max_tokens":0,"echo":true})");
  for (const Json& chunk : events(stream.body)) {
    text += chunk["choices"][0]["text"].get<std::string>();
    for (const Json& one : chunk["choices"][0]["logprobs"]["tokens"]) tokens.push_back(one);
  }
  EXPECT_EQ(text, "hey");
  EXPECT_EQ(tokens, (Json{"<s>", "h", "e", "y"}));
}

// The fake engine has a context of 256 tokens, of which a prompt may take 200.
TEST_F(RoutesTest, AnOverlongMaxTokensIsAnErrorInMaxTokens) {
  const auto refused = [](const Json& json, const char* param) {
    EXPECT_EQ(json["error"]["param"], param);
    EXPECT_EQ(json["error"]["code"], "context_length_exceeded");
    return json["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(
      refused(completion(R"("prompt":[97],"max_tokens":256)", 400), "max_tokens"),
      "'max_tokens' is too large: 256. This model's maximum context length is 256 tokens and your request has 1 input "
      "tokens (256 > 256 - 1).");
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  refused(chat(messages + R"(,"max_tokens":250)", 400), "max_tokens");
  refused(chat(messages + R"(,"max_tokens":5,"max_completion_tokens":250)", 400), "max_completion_tokens");
  const std::string longest = R"("prompt":")" + std::string(199, 'x') + '"';
  EXPECT_EQ(completion(longest + R"(,"max_tokens":56)")["usage"]["completion_tokens"], 56);
  refused(completion(longest + R"(,"max_tokens":57)", 400), "max_tokens");
  std::string ids = "97";
  for (int i = 0; i < 200; ++i) ids += ",97";
  EXPECT_EQ(
      refused(completion(R"("prompt":[)" + ids + R"(],"max_tokens":1000)", 400), "prompt"),
      "This model's maximum context length is 256 tokens, of which the prompt may take 200. However, your request has "
      "201 input tokens. Please reduce the length of the prompt.");
}

TEST_F(RoutesTest, PenaltiesBiasAndWordsReachTheEngine) {
  completion(R"("prompt":[97,98],"max_tokens":3,"presence_penalty":1.5,"frequency_penalty":-0.5,"min_tokens":2,
                "repetition_penalty":1.25,"no_repeat_ngram_size":3,"logit_bias":{"97":-100,"5":2.5},
                "bad_words":["no"," way"])");
  ASSERT_EQ(engine.seen.size(), 1u);
  const auto& sampling = engine.seen[0].getSamplingConfig();
  EXPECT_EQ(sampling.getPresencePenalty(), 1.5f);
  EXPECT_EQ(sampling.getFrequencyPenalty(), -0.5f);
  EXPECT_EQ(sampling.getRepetitionPenalty(), 1.25f);
  EXPECT_EQ(sampling.getNoRepeatNgramSize(), 3);
  EXPECT_EQ(sampling.getMinTokens(), 2);
  EXPECT_EQ(sampling.getPromptIgnoreLength(), 2);
  const auto* bias = static_cast<const float*>(engine.seen[0].getEmbeddingBias()->getData());
  EXPECT_EQ(bias[97], -100.0f);
  EXPECT_EQ(bias[5], 2.5f);
  EXPECT_EQ(bias[6], 0.0f);
  EXPECT_EQ(engine.seen[0].getBadWords(), (std::list<executor::VecTokens>{{'n', 'o'}, {'w', 'a', 'y'}}));
  completion(R"("prompt":[97,98],"max_tokens":3,"presence_penalty":1.5,"frequency_penalty":-0.5,"temperature":0.5)");
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getPresencePenalty(), 3.0f) << "the engine divides first";
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getFrequencyPenalty(), -1.0f);
  EXPECT_EQ(completion(R"("prompt":[97],"logit_bias":{"258":1})", 400)["error"]["param"], "logit_bias");
  EXPECT_EQ(completion(R"("prompt":[97],"max_tokens":3,"min_tokens":4)", 400)["error"]["param"], "min_tokens");
}

TEST_F(RoutesTest, TheModelsOwnDefaultsReachTheEngine) {
  context->defaults.repetition_penalty = 1.5;
  context->defaults.no_repeat_ngram_size = 4;
  context->defaults.min_tokens = 2;
  context->defaults.bad_words = {{97}, {98, 300}};
  completion(R"("prompt":[97],"max_tokens":1)");
  const auto& sampling = engine.seen[0].getSamplingConfig();
  EXPECT_EQ(sampling.getRepetitionPenalty(), 1.5f);
  EXPECT_EQ(sampling.getNoRepeatNgramSize(), 4);
  EXPECT_EQ(sampling.getMinTokens(), 2);
  EXPECT_EQ(engine.seen[0].getBadWords(), (std::list<executor::VecTokens>{{97}}));
  completion(R"("prompt":[97],"max_tokens":1,"repetition_penalty":1,"no_repeat_ngram_size":0,"min_tokens":0)");
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getRepetitionPenalty(), 1.0f);
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getNoRepeatNgramSize(), 0);
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getMinTokens(), 0);
}

TEST_F(RoutesTest, WhatStopsMayBePartOfTheText) {
  const auto textOf = [&](const std::string& fields) {
    return completion(R"("prompt":[97,98,99,257],"max_tokens":9,)" + fields)["choices"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(textOf(R"("stop":"bc","include_stop_str_in_output":true)"), "abc");
  EXPECT_EQ(textOf(R"("stop_token_ids":[98],"include_stop_str_in_output":true)"), "ab");
  EXPECT_EQ(textOf(R"("skip_special_tokens":false)"), "abc");
  EXPECT_EQ(textOf(R"("skip_special_tokens":false,"include_stop_str_in_output":true)"), "abc</s>");
  EXPECT_EQ(textOf(R"("stop":"b","min_tokens":2,"ignore_eos":true)"), "abca") << "stops wait for min_tokens";
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
  EXPECT_EQ(engine.running(), 0u) << "the choices that were accepted are cancelled";
}

TEST_F(RoutesTest, EngineErrors) {
  using Code = executor::ResponseErrorCode;
  engine.error_text = "PEFT Cache is full. Could not store taskId=1";
  engine.error_code = Code::kBUSY;
  const auto busy = answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})");
  EXPECT_EQ(busy.status, 429);
  EXPECT_THAT(busy.headers, ::testing::Contains(::testing::Pair("retry-after-ms", "500")));
  EXPECT_EQ(Json::parse(busy.body)["error"]["code"], "adapter_cache_full");
  EXPECT_THAT(std::string(Json::parse(busy.body)["error"]["message"]), ::testing::HasSubstr("NIM_MAX_CPU_LORAS"));
  engine.error_code = Code::kTOO_LARGE;
  EXPECT_EQ(completion(R"("prompt":"x")", 400)["error"]["code"], "adapter_too_large");
  engine.error_text = "std::bad_alloc";
  engine.error_code = Code::kEXHAUSTED;
  EXPECT_EQ(answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})").status, 503);
  engine.error_text = "Error storing task=1 in PEFT cache -- adapter 'a' was replaced; send the request again";
  engine.error_code = Code::kCONFLICT;
  const auto replaced = answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})");
  EXPECT_EQ(replaced.status, 409);
  EXPECT_EQ(Json::parse(replaced.body)["error"]["message"], engine.error_text);
  engine.error_text = "LoRA task 1 not found in cache. Please send LoRA weights with request";
  engine.error_code = Code::kNOT_FOUND;
  EXPECT_EQ(completion(R"("prompt":"x")", 404)["error"]["code"], "model_not_found");
  engine.error_text = "Encountered an error in forwardAsync function: /srv/x: gone";
  engine.error_code = Code::kINTERNAL;
  EXPECT_EQ(answer("POST", "/v1/completions", R"({"model":"base","prompt":"x"})").status, 500);
  engine.error_text = "token 5 is unknown, see /srv/x/tokens";
  engine.error_code = Code::kINVALID_ARGUMENT;
  EXPECT_EQ(completion(R"("prompt":"x")", 400)["error"]["message"], "token 5 is unknown, see tokens");
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
  const auto fails = [&](const char* text, Code code) {
    engine.error_text = text;
    engine.error_code = code;
    const auto response = answer("POST", "/v1/completions",
                                 R"({"model":"base","prompt":"x","adapters":[{"name":"first","weight":1},)"
                                 R"({"name":"second","weight":1}]})");
    return std::to_string(response.status) + " " + Json::parse(response.body)["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(fails("Error storing task=17 in PEFT cache -- /srv/second/adapter_config.json: gone", Code::kNOT_FOUND),
            "404 The model `second` does not exist or you do not have access to it.");
  EXPECT_EQ(fails("Error storing task=7 in PEFT cache -- /srv/first/adapter_model.bin: bad", Code::kCORRUPT),
            "400 Error storing adapter `first` in PEFT cache -- adapter_model.bin: bad");
  EXPECT_THAT(fails("PEFT Cache is full. Could not store taskId=17", Code::kBUSY),
              ::testing::AllOf(::testing::StartsWith("429 "), ::testing::HasSubstr("the adapter `second`")));
  EXPECT_EQ(fails("LoRA task 17 uses DoRA", Code::kUNSUPPORTED), "400 adapter `second` uses DoRA");
  EXPECT_EQ(fails("Error storing task=70 in PEFT cache -- gone", Code::kNOT_FOUND),
            "404 The model `base` does not exist or you do not have access to it.");
}

// Routes over an engine that needs a second for 200 tokens, so that a test can act while an answer is generated.
class SlowRoutesTest : public ::testing::Test {
 protected:
  SlowRoutesTest() { routes.serve(std::make_shared<ApiContext>(ApiContext{engine, models, intake, delivery, {}, {}})); }
  ~SlowRoutesTest() override {
    intake.finish();
    engine.stop();
    delivery.finish();
  }

  ModelCatalog models{{.name = "base", .text = std::make_shared<FakeCodec>()}};
  Intake intake{IntakeOptions{.threads = 1}};
  WorkerPool delivery{1};
  FakeEngine engine{std::chrono::milliseconds(5)};
  Routes routes;
};

TEST_F(SlowRoutesTest, AStreamThatFailsLaterEndsWithTheError) {
  auto stream = std::make_shared<FakeExchange>();
  routes.handle({.method = "POST",
                 .path = "/v1/completions",
                 .headers = {{"content-type", "application/json"}},
                 .body = R"({"model":"base","prompt":"x","stream":true,"max_tokens":200})"},
                stream);
  while (!stream->streaming()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  engine.failFromNow("token 5 is unknown", executor::ResponseErrorCode::kINVALID_ARGUMENT);
  const auto response = stream->wait();
  EXPECT_EQ(response.status, 200) << "the head of the stream was sent before the error";
  const std::string end =
      R"(data: {"error":{"message":"token 5 is unknown","type":"invalid_request_error","param":null,"code":null}})"
      "\n\ndata: [DONE]\n\n";
  EXPECT_TRUE(response.body.ends_with(end)) << response.body;
  EXPECT_EQ(response.body.find("finish_reason\":\"length"), std::string::npos) << "it did not fail while it ran";
}

TEST_F(SlowRoutesTest, DisconnectStopsTheEngine) {
  for (const char* stream : {"true", "false"}) {
    auto exchange = std::make_shared<FakeExchange>();
    routes.handle(
        {.method = "POST",
         .path = "/v1/completions",
         .headers = {{"content-type", "application/json"}},
         .body = std::string(R"({"model":"base","prompt":"x","n":3,"max_tokens":200,"stream":)") + stream + "}"},
        exchange);
    while (engine.running() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    exchange->disconnect();
    // The requests end long before they have generated 200 tokens, which takes a second.
    while (engine.running() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(engine.cancelled, 6);
}

}  // namespace
}  // namespace chorus::server
