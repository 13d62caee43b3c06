// Fields of requests on their way to the engine, and log probabilities on their way back.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

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

TEST_F(RoutesTest, LogProbs) {
  Json json = completion(R"("prompt":[97,98],"logprobs":1,"max_tokens":2)");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"], (Json{"a", "b"}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["token_logprobs"], (Json{-0.5, -0.5}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["text_offset"], (Json{0, 1}));
  EXPECT_EQ(json["choices"][0]["logprobs"]["top_logprobs"][1]["b"], -0.5);
  EXPECT_TRUE(completion(R"("prompt":[97],"logprobs":0)")["choices"][0]["logprobs"]["top_logprobs"].is_null());
  const auto stream = answer("POST", "/v1/completions",
                             R"({"model":"base","prompt":[97,98],"logprobs":1,"max_tokens":2,"stream":true})");
  EXPECT_THAT(stream.body,
              testing::HasSubstr(R"("choices":[{"index":0,"text":"b","logprobs":{"tokens":["b"],)"
                                 R"("token_logprobs":[-0.5],"top_logprobs":[{"b":-0.5}],"text_offset":[1]},)"));
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

// A turn of a delivery thread is short, so others are not kept waiting, and little is written before memory is charged.
TEST_F(RoutesTest, ALongPromptIsScoredInPieces) {
  const std::string prompt(190, 'x');
  const std::string fields = R"("prompt":")" + prompt + R"(","logprobs":2,"echo":true,"n":2,"max_tokens":)";
  for (const int made : {0, 3}) {
    const Json whole = completion(fields + std::to_string(made));
    for (const Json& choice : whole["choices"]) {
      EXPECT_EQ(choice["text"], prompt + std::string(static_cast<size_t>(std::max(made - 1, 0)), 'x'));
      EXPECT_EQ(choice["logprobs"]["tokens"].size(), 191u + static_cast<size_t>(made));
    }
    std::string text[2];
    Json joined[2];
    const auto stream =
        answer("POST", "/v1/completions", R"({"model":"base","stream":true,)" + fields + std::to_string(made) + "}");
    for (const Json& chunk : events(stream.body)) {
      const Json& choice = chunk["choices"][0];
      const auto index = choice["index"].get<size_t>();
      EXPECT_LE(choice["logprobs"]["tokens"].size(), 64u + 3u);
      text[index] += choice["text"].get<std::string>();
      for (const auto& [name, values] : choice["logprobs"].items()) {
        for (const Json& value : values) joined[index][name].push_back(value);
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(whole["choices"][i]["text"], text[i]);
      EXPECT_EQ(joined[i], whole["choices"][i]["logprobs"]);
      EXPECT_EQ(joined[i]["text_offset"].back(), made == 0 ? 189 : 190 + made - 2);
    }
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
  const auto& bias = *engine.seen[0].getTokenBias();
  ASSERT_EQ(bias.size(), 2u);
  EXPECT_EQ(std::pair(bias[0].token, bias[0].value), std::pair(5, 2.5f));
  EXPECT_EQ(std::pair(bias[1].token, bias[1].value), std::pair(97, -100.0f));
  EXPECT_EQ(engine.seen[0].getBadWords(), (std::list<executor::VecTokens>{{'n', 'o'}, {'w', 'a', 'y'}}));
  completion(R"("prompt":[97,98],"max_tokens":3,"presence_penalty":1.5,"frequency_penalty":-0.5,"temperature":0.5)");
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getPresencePenalty(), 3.0f) << "the engine divides first";
  EXPECT_EQ(engine.seen[1].getSamplingConfig().getFrequencyPenalty(), -1.0f);
  for (const auto& [fields, name] :
       {std::pair(R"("prompt":[97],"logit_bias":{"258":1})", "logit_bias"), std::pair(R"("prompt":[258])", "prompt"),
        std::pair(R"("prompt":[97],"stop_token_ids":[5,258])", "stop_token_ids")}) {
    const Json error = completion(fields, 400)["error"];
    EXPECT_EQ(error["param"], name);
    EXPECT_EQ(error["code"], "invalid_value");
    EXPECT_EQ(error["message"], fmt::format("Invalid value for '{}': token id 258 is not below the vocabulary's size "
                                            "of 258.",
                                            name));
  }
  EXPECT_EQ(completion(R"("prompt":[97],"max_tokens":3,"min_tokens":4)", 400)["error"]["param"], "min_tokens");
}

TEST_F(RoutesTest, ChoicesShareTheBadWords) {
  completion(R"("prompt":["a","b"],"max_tokens":1,"n":2,"bad_words":["no"])");
  ASSERT_EQ(engine.seen.size(), 4u);
  for (const auto& request : engine.seen) EXPECT_EQ(&request.getBadWords(), &engine.seen[0].getBadWords());
  EXPECT_EQ(engine.seen[0].getBadWords(), (std::list<executor::VecTokens>{{'n', 'o'}}));
}

TEST_F(RoutesTest, BadWordsHaveALimitOfTokensTogether) {
  const auto wordsOf = [](size_t last) {
    std::string words;
    for (int i = 0; i < 4; ++i) words += "\"" + std::string(1000, static_cast<char>('a' + i)) + "\",";
    return R"("prompt":"a","max_tokens":1,"bad_words":[)" + words + "\"" + std::string(last, 'z') + "\"]";
  };
  completion(wordsOf(96));
  EXPECT_EQ(engine.seen.back().getBadWords()->size(), 5u);
  const Json refused = completion(wordsOf(97), 400);
  EXPECT_EQ(refused["error"]["param"], "bad_words");
  EXPECT_NE(refused["error"]["message"].get<std::string>().find("more than 4096 tokens together"), std::string::npos);
  EXPECT_EQ(engine.seen.size(), 1u);
}

TEST_F(RoutesTest, NothingRunsIfOnePromptIsRefused) {
  const std::string prompts = R"("prompt":["abc",")" + std::string(199, 'x') + R"("],"n":2,"max_tokens":)";
  EXPECT_EQ(completion(prompts + "57", 400)["error"]["param"], "max_tokens");
  EXPECT_EQ(completion(prompts + R"(3,"min_tokens":4)", 400)["error"]["param"], "min_tokens");
  EXPECT_TRUE(engine.seen.empty());
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

}  // namespace
}  // namespace chorus::server
