#include "cli/bench/serve/answer_content.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "base/error.h"

namespace chorus {
namespace {

AnswerContent contentOf(std::initializer_list<const char*> events) {
  AnswerContent content;
  for (const char* event : events) content.add(parseJson(event, "event"), std::string_view(event).size());
  return content;
}

TEST(AnswerContentTest, PiecesOfTheStreamDoNotMatter) {
  const AnswerContent pieces = contentOf({
      R"({"id":"a","created":1,"choices":[{"index":0,"text":"He","logprobs":{"tokens":["He"],"token_logprobs":[-0.25]}}]})",
      R"({"id":"a","created":1,"choices":[{"index":1,"text":"x"}]})",
      R"({"id":"a","created":2,"choices":[{"index":0,"text":"y","logprobs":{"tokens":["y"],"token_logprobs":[-1.5]}}]})",
      R"({"choices":[{"index":0,"text":"","finish_reason":"length"},{"index":1,"text":"","finish_reason":"stop"}]})",
      R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}})",
  });
  const AnswerContent whole = contentOf({
      R"({"id":"b","choices":[{"index":1,"text":"x","finish_reason":"stop"},)"
      R"({"index":0,"text":"Hey","logprobs":{"tokens":["He","y"],"token_logprobs":[-0.25,-1.5]},"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":2}}})",
  });
  EXPECT_EQ(pieces.canonical(), whole.canonical());
}

TEST(AnswerContentTest, WhatTheModelDeterminesMatters) {
  const auto answer = [](const char* choice) { return contentOf({choice}).canonical(); };
  const std::string base = answer(R"({"choices":[{"text":"a","finish_reason":"stop","logprobs":{"t":[-0.5]}}]})");
  for (const char* other : {
           R"({"choices":[{"text":"b","finish_reason":"stop","logprobs":{"t":[-0.5]}}]})",
           R"({"choices":[{"text":"a","finish_reason":"length","logprobs":{"t":[-0.5]}}]})",
           R"({"choices":[{"text":"a","finish_reason":"stop","logprobs":{"t":[-0.5000001]}}]})",
           R"({"choices":[{"text":"a","finish_reason":"stop"}]})",
           R"({"choices":[{"text":"a","finish_reason":"stop","stop_reason":"x","logprobs":{"t":[-0.5]}}]})",
           R"({"choices":[{"text":"a","finish_reason":"stop","logprobs":{"t":[-0.5]}}],"usage":{"prompt_tokens":1}})",
       }) {
    EXPECT_NE(answer(other), base) << other;
  }
}

TEST(AnswerContentTest, ChatHasItsTextInTheDelta) {
  EXPECT_EQ(contentOf({R"({"choices":[{"delta":{"role":"assistant","content":"a"}}]})",
                       R"({"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]})"})
                .canonical(),
            contentOf({R"({"choices":[{"text":"ab","finish_reason":"stop"}]})"}).canonical());
}

TEST(AnswerContentTest, TheLastFingerprintNamesTheWeights) {
  EXPECT_EQ(contentOf({R"({"choices":[]})"}).fingerprint(), "");
  EXPECT_EQ(contentOf({R"({"system_fingerprint":"fp_1"})", R"({"system_fingerprint":"fp_2"})",
                       R"({"system_fingerprint":null})"})
                .fingerprint(),
            "fp_2");
}

TEST(AnswerContentTest, OtherTypesAreLeftOutAndEndlessAnswersRefused) {
  EXPECT_EQ(contentOf({R"([7])", R"({"choices":7,"usage":[1],"system_fingerprint":{}})",
                       R"({"choices":[7,null,[]],"usage":{"prompt_tokens":null}})"})
                .fingerprint(),
            "");
  AnswerContent endless;
  endless.add(Json::object(), AnswerContent::kMostBytes);
  EXPECT_THROW(endless.add(Json::object(), 1), Error);
}

}  // namespace
}  // namespace chorus
