// Answers that continue the prompt's text, with a tokenizer whose texts begin without the space of their first word.
#include <gtest/gtest.h>

#include "server/testing/routes_fixture.h"
#include "text/tokenizer/tokenizer_files.h"

namespace chorus::server {
namespace {

// Llama's decoder with a few words. The template writes a text as it is.
std::shared_ptr<const TextCodec> wordCodec() {
  const auto special = [](int id, const char* content) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  Json tokenizer = parseJson(R"({
    "model": {"type": "WordLevel", "unk_token": "<unk>",
              "vocab": {"<unk>": 0, "<s>": 1, "\u2581Hello": 2, "\u2581big": 3, "\u2581": 4}},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})",
                             "tokenizer.json");
  tokenizer["added_tokens"] = {special(0, "<unk>"), special(1, "<s>")};
  const Json config{{"chat_template", "{{ messages[-1].content }}"}};
  WorkMeter meter;
  return parseTextCodec({"t", {{"tokenizer.json", tokenizer.dump()}, {"tokenizer_config.json", config.dump()}}},
                        nullptr, meter);
}

// The engine repeats the prompt.
class ContinuedTextTest : public RoutesTest {
 protected:
  ContinuedTextTest() {
    models.putAdapter({.name = "words", .fingerprint = "fp_words", .created = 9, .text = wordCodec()});
  }
  Json send(const std::string& path, const std::string& fields) {
    const auto response = answer("POST", path, R"({"model":"words",)" + fields + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return Json::parse(response.body);
  }
  std::string textOf(const std::string& fields) { return send("/v1/completions", fields)["choices"][0]["text"]; }
};

TEST_F(ContinuedTextTest, ACompletionHasTheSpaceOfItsFirstWord) {
  EXPECT_EQ(textOf(R"("prompt":[2,3],"max_tokens":2)"), " Hello big");
  EXPECT_EQ(textOf(R"("prompt":"Hello big","max_tokens":2)"), " Hello big");
  EXPECT_EQ(textOf(R"("prompt":"Hello big","max_tokens":2,"echo":true)"), "Hello big Hello big");
  EXPECT_EQ(textOf(R"("prompt":[2,3],"max_tokens":2,"echo":true)"), "Hello big Hello big");
  EXPECT_EQ(textOf(R"("prompt":[2,3],"max_tokens":2,"echo":true,"logprobs":0)"), "Hello big Hello big");
  // There is no text before the answer.
  EXPECT_EQ(textOf(R"("prompt":[1],"max_tokens":2)"), "");
  const Json many = send("/v1/completions", R"("prompt":[[2],[3,2]],"max_tokens":1,"n":2)")["choices"];
  for (const size_t i : {0, 1}) EXPECT_EQ(many[i]["text"], " Hello");
  for (const size_t i : {2, 3}) EXPECT_EQ(many[i]["text"], " big");
  const auto stream = events(
      answer("POST", "/v1/completions", R"({"model":"words","stream":true,"prompt":[2,3],"max_tokens":1})").body);
  EXPECT_EQ(stream.front()["choices"][0]["text"], " Hello");
}

TEST_F(ContinuedTextTest, AStopStringMayBeginWithTheFirstSpace) {
  const Json choice = send("/v1/completions", R"("prompt":[2,3],"max_tokens":2,"stop":" Hello")")["choices"][0];
  EXPECT_EQ(choice["text"], "");
  EXPECT_EQ(choice["stop_reason"], " Hello");
  // The prompt's own text is none of the answer's.
  EXPECT_EQ(textOf(R"("prompt":[2,3],"max_tokens":1,"stop":"big Hello")"), " Hello");
}

TEST_F(ContinuedTextTest, OnlyAContinuedMessageGoesOn) {
  const auto chat_text = [&](const std::string& fields) {
    return send("/v1/chat/completions", fields)["choices"][0]["message"]["content"];
  };
  const std::string user = R"({"role":"user","content":"Hello big"})";
  const std::string both = "[" + user + R"(,{"role":"assistant","content":"Hello"}])";
  EXPECT_EQ(chat_text(R"("max_tokens":2,"messages":[)" + user + "]"), "Hello big");
  EXPECT_EQ(
      chat_text(R"("max_tokens":2,"add_generation_prompt":false,"continue_final_message":true,"messages":)" + both),
      " Hello Hello");
  const auto message_text = [&](const std::string& messages) {
    return send("/v1/messages", R"("max_tokens":2,"messages":)" + messages)["content"][0]["text"];
  };
  EXPECT_EQ(message_text("[" + user + "]"), "Hello big");
  EXPECT_EQ(message_text(both), " Hello Hello");
}

}  // namespace
}  // namespace chorus::server
