#include "server/routes/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/testing/routes_fixture.h"
namespace chorus::server {
namespace {

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
  for (const Json& model : list["data"]) EXPECT_EQ(model["max_model_len"], 256);
  EXPECT_EQ(Json::parse(answer("GET", "/v1/models/base").body)["max_model_len"], 256);
  EXPECT_EQ(Json::parse(answer("GET", "/v1/models/sh%69ft").body)["id"], "shift");
  EXPECT_THAT(answer("GET", "/v1/models/").body, testing::HasSubstr("/v1/models/")) << "the error names the path";
  const auto missing = answer("GET", "/v1/models/none");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(Json::parse(missing.body)["error"]["code"], "model_not_found");
}

TEST_F(RoutesTest, PathsMethodsAndTypes) {
  EXPECT_EQ(answer("GET", "/v1/health/live").status, 200);
  EXPECT_EQ(answer("GET", "/v1/health/ready").status, 200);
  for (const char* path : {"/health", "/ping"}) {
    EXPECT_EQ(answer("GET", path).body, answer("GET", "/v1/health/ready").body) << path;
    EXPECT_EQ(answer("HEAD", path).status, 200) << path;
    EXPECT_EQ(answer("POST", path, "{}").status, 405) << path;
  }
  EXPECT_EQ(answer("GET", "/health/x").status, 404);
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

TEST_F(RoutesTest, TheClientReachesTheEngine) {
  completion(R"("prompt":"a","max_tokens":1)");
  EXPECT_EQ(engine.seen.back().getClientId(), client->id());
}

}  // namespace
}  // namespace chorus::server
