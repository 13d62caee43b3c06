#include "server/openai/log_probs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "server/testing/fakes.h"

namespace chorus::server {
namespace {

class CountingCodec : public FakeCodec {
 public:
  std::string tokenBytes(int32_t token) const override {
    ++calls;
    return FakeCodec::tokenBytes(token);
  }
  mutable int calls = 0;
};

GenerationOptions asking(int32_t alternatives) {
  GenerationOptions options;
  options.log_probs = true;
  options.top_log_probs = alternatives;
  return options;
}

Json parsed(ArraysText text) {
  std::string json;
  text.moveTo(json);
  return Json::parse(json);
}

TEST(LogProbs, TheBytesOfATokenAreFoundOnce) {
  std::vector<TokenLogProb> tokens;
  for (int i = 0; i < 50; ++i) tokens.push_back({'a' + i % 2, -0.5f, {{'a', -0.5f}, {'b', -1.0f}, {'c', -2.0f}}});
  CountingCodec text;
  int64_t offset = 0;
  ArraysText completion;
  appendCompletionLogProbs(text, asking(3), tokens, offset, completion);
  EXPECT_EQ(text.calls, 3);
  EXPECT_EQ(offset, 50);
  const Json json = parsed(std::move(completion));
  EXPECT_EQ(json["tokens"][49], "b");
  EXPECT_EQ(json["top_logprobs"][49], (Json{{"a", -0.5}, {"b", -1.0}, {"c", -2.0}}));
  text.calls = 0;
  std::string entries;
  appendLogProbEntries(text, tokens, entries);
  EXPECT_EQ(Json::parse('[' + entries + ']')[49]["top_logprobs"][2]["token"], "c");
  EXPECT_EQ(text.calls, 3);
}

TEST(LogProbs, NamesAndValuesAreJson) {
  const std::vector<float> values = {-0.0F,       -1.0F,  -1e-30F,
                                     -123456.78F, -3e38F, -std::numeric_limits<float>::infinity()};
  std::vector<TokenLogProb> tokens;
  for (const int32_t token : std::initializer_list<int32_t>{'"', '\\', '\n', 0x01, 0x7F, 0xE9, 'a'}) {
    for (const float value : values) tokens.push_back({token, value, {{token, value}}});
  }
  const FakeCodec text;
  ArraysText out;
  appendChatLogProbs(text, asking(1), tokens, out);
  const Json json = parsed(std::move(out));
  ASSERT_EQ(json["content"].size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Json& entry = json["content"][i];
    const int32_t token = tokens[i].token;
    EXPECT_EQ(entry["token"], token > 0x7F ? "bytes:\\xe9" : std::string(1, static_cast<char>(token)));
    EXPECT_EQ(entry["bytes"], Json::array({tokens[i].token}));
    if (const float value = *tokens[i].log_prob; std::isfinite(value)) {
      EXPECT_TRUE(entry["logprob"].is_number_float());
      EXPECT_EQ(entry["logprob"], static_cast<double>(value));
    } else {
      EXPECT_TRUE(entry["logprob"].is_null()) << "JSON has no infinity";
    }
    EXPECT_EQ(entry["top_logprobs"][0]["token"], entry["token"]);
    EXPECT_EQ(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
  }
}

// Different tokens may have the same text.
class SameTextCodec : public FakeCodec {
 public:
  std::string tokenBytes(int32_t) const override { return "x"; }
};

TEST(LogProbs, TheLikeliestOfTokensWithOneNameCounts) {
  ArraysText out;
  int64_t offset = 7;
  const std::vector<TokenLogProb> tokens = {{1, std::nullopt, {}}, {2, -3.0F, {{3, -1.0F}, {4, -2.0F}}}};
  appendCompletionLogProbs(SameTextCodec(), asking(2), tokens, offset, out);
  EXPECT_EQ(parsed(std::move(out)), Json::parse(R"({"tokens":["x","x"],"token_logprobs":[null,-3.0],
      "top_logprobs":[null,{"x":-1.0}],"text_offset":[7,8]})"));
}

TEST(LogProbs, TheTextOfAChat) {
  ArraysText none, one;
  std::string json;
  appendChatLogProbs(FakeCodec(), asking(1), {}, none);
  none.moveTo(json);
  EXPECT_EQ(json, R"({"content":[],"refusal":null})");
  json.clear();
  appendChatLogProbs(FakeCodec(), asking(1), {{'a', -0.5F, {{'b', -1.0F}}}}, one);
  one.moveTo(json);
  EXPECT_EQ(json, R"({"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
                  R"({"token":"b","logprob":-1.0,"bytes":[98]}]}],"refusal":null})");
}

TEST(LogProbs, ArraysGrowByDeltas) {
  const FakeCodec text;
  ArraysText completion, chat, none;
  int64_t offset = 0;
  for (const int32_t token : std::initializer_list<int32_t>{'a', 'b'}) {
    appendCompletionLogProbs(text, asking(0), {{token, -1.0F, {}}}, offset, completion);
    appendChatLogProbs(text, asking(0), {{token, -1.0F, {}}}, chat);
    appendChatLogProbs(text, GenerationOptions(), {{token, -1.0F, {}}}, none);
  }
  appendChatLogProbs(text, asking(0), {}, chat);
  EXPECT_GT(completion.bytes(), 0U);
  std::string json;
  completion.moveTo(json);
  EXPECT_EQ(json, R"({"tokens":["a","b"],"token_logprobs":[-1.0,-1.0],"top_logprobs":null,"text_offset":[0,1]})");
  EXPECT_EQ(completion.bytes(), 0U);
  const Json content = parsed(std::move(chat));
  EXPECT_EQ(content["content"].size(), 2U);
  EXPECT_TRUE(content["refusal"].is_null());
  EXPECT_TRUE(parsed(std::move(none)).is_null());
}

}  // namespace
}  // namespace chorus::server
