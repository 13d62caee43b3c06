#include "server/openai/openai_types.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/exact_json.h"
#include "server/errors.h"

namespace chorus::server {
namespace {

// The error of a completion or chat body, as "status param code".
template <typename Request>
std::string refusal(Request (*parse)(std::string_view, int32_t), const std::string& body) {
  try {
    parse(body, kDefaultMaxChoices);
  } catch (const ApiError& e) {
    const Json error = Json::parse(e.body())["error"];
    const auto text = [&](const char* key) { return error[key].is_null() ? "-" : error[key].get<std::string>(); };
    return std::to_string(e.status()) + " " + text("param") + " " + text("code");
  }
  return "accepted";
}
std::string completionRefusal(const std::string& fields) {
  return refusal<CompletionRequest>(parseCompletionRequest, R"({"model":"m","prompt":"hi",)" + fields + "}");
}
std::string chatRefusal(const std::string& fields) {
  return refusal<ChatRequest>(parseChatRequest,
                              R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + fields + "}");
}

TEST(CompletionRequest, PromptShapes) {
  const auto parse = [](const std::string& prompt) {
    return parseCompletionRequest(R"({"model":"m","prompt":)" + prompt + "}").prompts;
  };
  EXPECT_EQ(std::get<std::string>(parse(R"("one")")[0]), "one");
  EXPECT_EQ(parse(R"(["a","b"])").size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(parse("[1,2,3]")[0]), (std::vector<int32_t>{1, 2, 3}));
  const auto nested = parse("[[1],[2,3]]");
  ASSERT_EQ(nested.size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>(nested[1]), (std::vector<int32_t>{2, 3}));
  const auto refused = [](const std::string& prompt) {
    return refusal<CompletionRequest>(parseCompletionRequest, R"({"model":"m","prompt":)" + prompt + "}");
  };
  for (const char* bad : {"[]", "[[]]", "[-1]", "[2147483648]", "[99999999999999999999]"}) {
    EXPECT_EQ(refused(bad), "400 prompt invalid_value") << bad;
  }
  for (const char* bad :
       {"7", "{}", "[1,\"a\"]", "[\"a\",1]", "[[1],2]", "[true]", "[null]", "[[1,\"x\"]]", "[[1,null]]", "[1.5]"}) {
    EXPECT_EQ(refused(bad), "400 prompt invalid_type") << bad;
  }
  EXPECT_EQ(refused("null"), "400 prompt missing_required_parameter");
}

TEST(CompletionRequest, AdaptersToCompose) {
  const auto parsed = parseCompletionRequest(
      R"({"model":"m","prompt":"x","adapters":[{"name":"a","weight":0.25},{"name":"b","weight":-3}]})");
  ASSERT_EQ(parsed.options.adapters.size(), 2u);
  EXPECT_EQ(parsed.options.adapters[1].name, "b");
  EXPECT_EQ(parsed.options.adapters[0].weight, 0.25f);
  EXPECT_EQ(parsed.options.adapters[1].weight, -3.0f);
  for (const auto& refused : {completionRefusal, chatRefusal}) {
    EXPECT_EQ(refused(R"("adapters":[])"), "400 adapters invalid_value");
    EXPECT_EQ(refused(R"("adapters":{"a":1})"), "400 adapters invalid_type");
    EXPECT_EQ(refused(R"("adapters":["a"])"), "400 adapters[0] invalid_type");
    EXPECT_EQ(refused(R"("adapters":[{"weight":1}])"), "400 adapters[0].name invalid_value");
    EXPECT_EQ(refused(R"("adapters":[{"name":"","weight":1}])"), "400 adapters[0].name invalid_value");
    EXPECT_EQ(refused(R"("adapters":[{"name":3,"weight":1}])"), "400 adapters[0].name invalid_type");
    EXPECT_EQ(refused(R"("adapters":[{"name":"a"}])"), "400 adapters[0].weight invalid_value");
    const auto of_weight = [&](const std::string& weight) {
      return refused(R"("adapters":[{"name":"a","weight":)" + weight + "}]");
    };
    for (const char* weight : {"\"1\"", "true", "[1]"}) {
      EXPECT_EQ(of_weight(weight), "400 adapters[0].weight invalid_type") << weight;
    }
    for (const char* weight : {"1e39", "-1e39"}) {
      EXPECT_EQ(of_weight(weight), "400 adapters[0].weight invalid_value") << weight;
    }
    EXPECT_EQ(refused(R"("adapters":[{"name":"a","weight":1},{"name":"b","weight":1},{"name":"a","weight":2}])"),
              "400 adapters[2].name invalid_value");
    std::string many;
    for (int i = 0; i < 33; ++i) many += fmt::format("{}{{\"name\":\"a{}\",\"weight\":1}}", i ? "," : "", i);
    EXPECT_EQ(refused("\"adapters\":[" + many + "]"), "400 adapters invalid_value");
  }
}

TEST(CompletionRequest, DefaultsAndValues) {
  const auto plain = parseCompletionRequest(R"({"model":"m","prompt":"x","max_tokens":null,"unknown":1,"user":7})");
  EXPECT_FALSE(plain.options.max_tokens);
  EXPECT_FALSE(plain.options.sampling.temperature);
  EXPECT_EQ(plain.options.choices, 1);
  EXPECT_FALSE(plain.options.stream);
  const auto full = parseCompletionRequest(
      R"({"model":"m","prompt":"x","max_tokens":5,"temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,"seed":-3,)"
      R"("stop":["a","b"],"stop_token_ids":[4],"ignore_eos":true,"n":2,"best_of":2,"stream":true,"echo":true,)"
      R"("stream_options":{"include_usage":true},"logit_bias":{},"presence_penalty":0,"suffix":null})");
  EXPECT_EQ(full.options.max_tokens, 5);
  EXPECT_EQ(full.options.sampling.temperature, 0.0);
  EXPECT_EQ(full.options.sampling.top_k, 0);
  EXPECT_EQ(full.options.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(full.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(full.options.stop_token_ids, (std::vector<int32_t>{4}));
  EXPECT_TRUE(full.options.ignore_eos && full.options.stream && full.options.include_usage && full.echo);
  EXPECT_EQ(parseCompletionRequest(R"({"model":"m","prompt":"x","stop":"end"})").options.stop.front(), "end");
}

TEST(CompletionRequest, EveryFieldIsChecked) {
  for (const char* bad : {R"("max_tokens":0)", R"("max_tokens":-1)", R"("max_tokens":2147483648)",
                          R"("max_tokens":18446744073709551615)", R"("max_tokens":1e30)"}) {
    EXPECT_EQ(completionRefusal(bad), "400 max_tokens invalid_value") << bad;
  }
  for (const char* bad : {R"("max_tokens":"5")", R"("max_tokens":1.5)", R"("max_tokens":true)", R"("max_tokens":[])"}) {
    EXPECT_EQ(completionRefusal(bad), "400 max_tokens invalid_type") << bad;
  }
  EXPECT_EQ(completionRefusal(R"("max_tokens":4.0)"), "accepted");
  EXPECT_EQ(completionRefusal(R"("temperature":2.1)"), "400 temperature invalid_value");
  EXPECT_EQ(completionRefusal(R"("temperature":-0.1)"), "400 temperature invalid_value");
  EXPECT_EQ(completionRefusal(R"("temperature":"hot")"), "400 temperature invalid_type");
  EXPECT_EQ(completionRefusal(R"("top_p":1.5)"), "400 top_p invalid_value");
  EXPECT_EQ(completionRefusal(R"("min_p":-1)"), "400 min_p invalid_value");
  EXPECT_EQ(completionRefusal(R"("top_k":-2)"), "400 top_k invalid_value");
  EXPECT_EQ(completionRefusal(R"("best_of":3)"), "accepted");
  EXPECT_EQ(completionRefusal(R"("best_of":2,"n":3)"), "400 best_of invalid_value");
  EXPECT_EQ(completionRefusal(R"("best_of":3,"stream":true)"), "400 best_of invalid_value");
  EXPECT_EQ(completionRefusal(R"("best_of":16)"), "accepted");
  EXPECT_EQ(completionRefusal(R"("best_of":17)"), "400 best_of invalid_value");
  EXPECT_EQ(completionRefusal(R"("n":0)"), "400 n invalid_value");
  EXPECT_EQ(completionRefusal(R"("n":16)"), "accepted");
  EXPECT_EQ(completionRefusal(R"("n":17)"), "400 n invalid_value");
  EXPECT_EQ(completionRefusal(R"("cache_salt":"a")"), "accepted");
  EXPECT_EQ(completionRefusal(R"("cache_salt":"")"), "400 cache_salt invalid_value");
  EXPECT_EQ(completionRefusal(R"("cache_salt":5)"), "400 cache_salt invalid_type");
  EXPECT_EQ(completionRefusal(fmt::format(R"("cache_salt":"{}")", std::string(1025, 'x'))),
            "400 cache_salt invalid_value");
  EXPECT_EQ(completionRefusal(R"("n":100000000000000000000000)"), "400 n invalid_value");
  EXPECT_EQ(completionRefusal(R"("seed":"x")"), "400 seed invalid_type");
  EXPECT_EQ(completionRefusal(R"("stream":1)"), "400 stream invalid_type");
  EXPECT_EQ(completionRefusal(R"("stop":5)"), "400 stop invalid_type");
  EXPECT_EQ(completionRefusal(R"("stop":[""])"), "400 stop invalid_value");
  EXPECT_EQ(completionRefusal(R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])"),
            "400 stop invalid_value");
  EXPECT_EQ(completionRefusal(R"("stream_options":{"include_usage":true})"), "400 stream_options invalid_value");
  EXPECT_EQ(completionRefusal(R"("stream":true,"stream_options":[])"), "400 stream_options invalid_type");
  EXPECT_EQ(completionRefusal(R"("stream":true,"stream_options":{"include_usage":"yes"})"),
            "400 stream_options.include_usage invalid_type");
  EXPECT_EQ(completionRefusal(R"("logprobs":6)"), "400 logprobs invalid_value");
  EXPECT_EQ(completionRefusal(R"("logprobs":true)"), "400 logprobs invalid_type");
  EXPECT_EQ(refusal(parseCompletionRequest, R"({"prompt":"x"})"), "400 model missing_required_parameter");
  EXPECT_EQ(refusal(parseCompletionRequest, R"({"model":3,"prompt":"x"})"), "400 model invalid_type");
}

TEST(CompletionRequest, SamplingFieldsAreChecked) {
  struct Case {
    const char* name;
    std::vector<const char*> values, types;  // what is refused as a value and as a type
  };
  const Case cases[] = {
      {"presence_penalty", {"2.1", "-2.1"}, {"\"x\"", "true"}},
      {"frequency_penalty", {"2.1", "-2.1"}, {"[]"}},
      {"repetition_penalty", {"0", "-1", "1e-60", "101"}, {"\"1\""}},
      {"no_repeat_ngram_size", {"-1", "2147483648"}, {"1.5"}},
      {"min_tokens", {"-1", "2147483648"}, {"\"2\""}},
      {"logit_bias",
       {R"({"x":1})", R"({"":1})", R"({"-1":1})", R"({"1.5":1})", R"({"2147483648":1})", R"({"1 ":1})", R"({"5":101})",
        R"({"5":-101})", R"({"5":99999999999999999999})"},
       {"[]", "5", R"({"5":"1"})", R"({"5":null})", R"({"5":true})"}},
      {"bad_words", {"[\"\"]", "[\"  \"]"}, {"\"x\"", "[1]", "{}"}},
      {"include_stop_str_in_output", {}, {"1"}},
      {"skip_special_tokens", {}, {"\"no\""}},
  };
  for (const auto& [name, values, types] : cases) {
    for (const auto& [refused, code] : {std::pair(values, "invalid_value"), std::pair(types, "invalid_type")}) {
      for (const char* value : refused) {
        const std::string field = std::string("\"") + name + "\":" + value;
        EXPECT_EQ(completionRefusal(field), fmt::format("400 {} {}", name, code)) << value;
        EXPECT_EQ(chatRefusal(field), fmt::format("400 {} {}", name, code)) << value;
      }
    }
  }
  std::string words = "\"bad_words\":[";
  for (int i = 0; i < 129; ++i) words += i == 0 ? "\"w\"" : ",\"w\"";
  EXPECT_EQ(completionRefusal(words + "]"), "400 bad_words invalid_value");
  EXPECT_EQ(completionRefusal("\"bad_words\":[\"" + std::string(1025, 'x') + "\"]"), "400 bad_words invalid_value");

  const auto request = parseCompletionRequest(
      R"({"model":"m","prompt":"x","presence_penalty":-2,"frequency_penalty":2,"repetition_penalty":1.1,)"
      R"("no_repeat_ngram_size":3,"min_tokens":4,"logit_bias":{"7":-100,"9":0.5},"bad_words":["a b"],)"
      R"("include_stop_str_in_output":true,"skip_special_tokens":false,"echo":true,"logprobs":2})");
  const SamplingFields& sampling = request.options.sampling;
  EXPECT_EQ(sampling.presence_penalty, -2.0);
  EXPECT_EQ(sampling.frequency_penalty, 2.0);
  EXPECT_EQ(sampling.repetition_penalty, 1.1);
  EXPECT_EQ(sampling.no_repeat_ngram_size, 3);
  EXPECT_EQ(sampling.min_tokens, 4);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, -100.0f}, {9, 0.5f}}));
  EXPECT_EQ(sampling.bad_words, std::vector<std::string>{"a b"});
  EXPECT_TRUE(request.options.include_stop && !request.options.skip_special_tokens && request.options.prompt_log_probs);
}

TEST(CompletionRequest, WithoutTokensTheEchoedPromptIsScored) {
  const auto scored = parseCompletionRequest(R"({"model":"m","prompt":"x","max_tokens":0,"echo":true,"logprobs":1})");
  EXPECT_EQ(scored.options.max_tokens, 0);
  EXPECT_TRUE(scored.echo && scored.options.prompt_log_probs);
  EXPECT_EQ(completionRefusal(R"("max_tokens":0)"), "400 max_tokens invalid_value") << "an answer of nothing";
  EXPECT_EQ(completionRefusal(R"("max_tokens":0,"echo":false,"logprobs":1)"), "400 max_tokens invalid_value");
  EXPECT_EQ(completionRefusal(R"("max_tokens":-1,"echo":true)"), "400 max_tokens invalid_value");
  EXPECT_EQ(chatRefusal(R"("max_tokens":0)"), "400 max_tokens invalid_value");
  EXPECT_EQ(chatRefusal(R"("max_completion_tokens":0)"), "400 max_completion_tokens invalid_value");
}

TEST(CompletionRequest, SpecialTokensMayBeLeftOut) {
  EXPECT_TRUE(parseCompletionRequest(R"({"model":"m","prompt":"x"})").add_special_tokens);
  EXPECT_FALSE(parseCompletionRequest(R"({"model":"m","prompt":"x","add_special_tokens":false})").add_special_tokens);
}

TEST(ChatRequest, MessagesAndToolCalls) {
  const auto request = parseChatRequest(
      R"({"model":"m","max_completion_tokens":9,"max_tokens":3,"messages":[
        {"role":"system","content":"be brief"},
        {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
        {"role":"assistant","content":null,"tool_calls":[
          {"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
        {"role":"tool","tool_call_id":"1","content":"ok"}]})");
  EXPECT_EQ(request.options.max_tokens, 9);
  EXPECT_EQ(request.options.max_tokens_field, "max_completion_tokens");
  EXPECT_EQ(request.messages[1]["content"], "a\nb");
  EXPECT_EQ(request.messages[1]["name"], "n");
  EXPECT_TRUE(request.messages[2]["content"].is_null());
  EXPECT_EQ(request.messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
}

// A template can distinguish a message without content from one whose content is null.
TEST(ChatRequest, AMessageWithoutContentReachesTheTemplateWithoutTheKey) {
  const auto request = parseChatRequest(
      R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]},
          {"role":"assistant","content":null},{"role":"assistant"}]})");
  EXPECT_FALSE(request.messages[0].contains("content"));
  EXPECT_TRUE(request.messages[1].contains("content") && request.messages[1]["content"].is_null());
  EXPECT_FALSE(request.messages[2].contains("content"));
}

TEST(ChatRequest, ToolsAreRefusedUntilTheirCallsAreParsed) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";
  EXPECT_EQ(chatRefusal(tools), "400 tools unsupported_parameter");
  EXPECT_EQ(chatRefusal(tools + R"(,"tool_choice":"auto")"), "400 tools unsupported_parameter");
  EXPECT_EQ(chatRefusal(tools + R"(,"tool_choice":"none")"), "accepted") << "no tool is asked for";
  EXPECT_EQ(chatRefusal(R"("tool_choice":"required")"), "400 tool_choice unsupported_parameter");
  EXPECT_EQ(chatRefusal(R"("tool_choice":{"type":"function","function":{"name":"f"}})"),
            "400 tool_choice unsupported_parameter");
  EXPECT_EQ(chatRefusal(R"("functions":[{"name":"f"}],"function_call":"auto")"), "400 functions unsupported_parameter");
  EXPECT_EQ(chatRefusal(R"("tools":[],"tool_choice":"auto","parallel_tool_calls":true,"functions":null)"), "accepted")
      << "what clients send when there are no tools";
}

TEST(ChatRequest, IntegersOfMessagesKeepTheirDigits) {
  const auto request = parseChatRequest(
      R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f",
          "arguments":"{\"id\":123456789012345678901234}"}}]}],"chat_template_kwargs":{"n":-99999999999999999999}})");
  EXPECT_EQ(wideIntegerDigits(request.messages[0]["tool_calls"][0]["function"]["arguments"]["id"]),
            "123456789012345678901234");
  EXPECT_EQ(wideIntegerDigits(request.rendering.variables["n"]), "-99999999999999999999");
  EXPECT_EQ(chatRefusal(R"("temperature":99999999999999999999)"), "400 temperature invalid_value");
  EXPECT_EQ(chatRefusal(R"("metadata":{"id":99999999999999999999})"), "accepted");
}

TEST(ChatRequest, Refusals) {
  const auto messages = [](const std::string& value) {
    return refusal<ChatRequest>(parseChatRequest, R"({"model":"m","messages":)" + value + "}");
  };
  EXPECT_EQ(messages("null"), "400 messages missing_required_parameter");
  EXPECT_EQ(messages("[]"), "400 messages invalid_value");
  EXPECT_EQ(messages("{}"), "400 messages invalid_type");
  EXPECT_EQ(messages("\"hi\""), "400 messages invalid_type");
  EXPECT_EQ(messages("[3]"), "400 messages[0] invalid_type");
  EXPECT_EQ(messages(R"([{"content":"x"}])"), "400 messages[0].role invalid_value");
  EXPECT_EQ(messages(R"([{"role":"user"}])"), "400 messages[0].content invalid_value");
  EXPECT_EQ(messages(R"([{"role":"user","content":5}])"), "400 messages[0].content invalid_type");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
            "400 messages[0].content[0].type invalid_value");
  for (const std::string type : {"image_url", "image", "input_image", "image_embeds", "video_url", "input_audio"}) {
    const std::string parts = R"([{"type":"text","text":"a"},{"type":")" + type + R"("}])";
    try {
      parseChatRequest(R"({"model":"m","messages":[{"role":"user","content":)" + parts + "}]}", kDefaultMaxChoices);
      ADD_FAILURE() << type;
    } catch (const ApiError& e) {
      EXPECT_EQ(Json::parse(e.body())["error"]["message"],
                "Invalid value for 'messages[0].content[1].type': only text is supported, not '" + type + "'.");
    }
  }
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"image_url":{"url":"x"}}]}])"),
            "400 messages[0].content[0].type invalid_value");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"text"}]}])"),
            "400 messages[0].content[0].text invalid_value");
  EXPECT_EQ(messages(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"no"}}]}])"),
            "400 messages[0].tool_calls[0].function.arguments invalid_value");
  EXPECT_EQ(chatRefusal(R"("response_format":{"type":"json_object"})"), "400 response_format unsupported_parameter");
  EXPECT_EQ(chatRefusal(R"("chat_template":5)"), "400 chat_template invalid_type");
  EXPECT_EQ(chatRefusal(R"("chat_template_kwargs":{"tools":[]})"), "400 chat_template_kwargs invalid_value");
  EXPECT_EQ(chatRefusal(R"("documents":["text"])"), "400 documents invalid_type");
  EXPECT_EQ(chatRefusal(R"("continue_final_message":true)"), "400 continue_final_message invalid_value");
  EXPECT_EQ(chatRefusal(R"("top_logprobs":2)"), "400 top_logprobs invalid_value");
  EXPECT_EQ(chatRefusal(R"("logprobs":3)"), "400 logprobs invalid_type");
}

TEST(RequestBody, HostileJson) {
  const auto refused = [](const std::string& body) { return refusal(parseCompletionRequest, body); };
  EXPECT_EQ(refused(""), "400 - -");
  EXPECT_EQ(refused("[]"), "400 - -");
  EXPECT_EQ(refused("{"), "400 - -");
  EXPECT_EQ(refused(R"({"model":"m",})"), "400 - -");
  EXPECT_EQ(refused("{\"model\":\"\xff\"}"), "400 - -");
  EXPECT_EQ(refused(R"({"model":"\ud800"})"), "400 - -");
  EXPECT_EQ(refused(R"({"temperature":1e999})"), "400 - -");
  EXPECT_EQ(refused(std::string(100'000, '[')), "400 - -");
  std::string wide = "{";
  for (int i = 0; i < 2000; ++i) wide += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(refused(wide + "\"z\":0}"), "400 - -");
  std::string many = "{\"prompt\":[0";
  for (int i = 0; i < (2 << 20) + 1; ++i) many += ",0";
  EXPECT_EQ(refused(many + "]}"), "400 - request_too_complex");
}

TEST(RequestBody, MemoryIsEstimatedBeforeItIsTaken) {
  const auto repeated = [](std::string_view piece, size_t count) {
    std::string text = "{\"model\":\"m\",\"prompt\":[";
    for (size_t i = 0; i < count; ++i) text += piece;
    return text + "0]}";
  };
  EXPECT_EQ(parseCompletionRequest(repeated("1,", 1'000'000)).prompts.size(), 1u) << "a long prompt of token ids";
  for (const char* piece : {"1,", "[],", "{},", "\"\",", "[[]],", "{\"\":0},", "null,", "18446744073709551616,"}) {
    EXPECT_EQ(refusal(parseCompletionRequest, repeated(piece, 2'700'000)), "400 - request_too_complex") << piece;
    // The estimate is at least the size of the parsed values.
    EXPECT_GE(estimateJsonMemory(repeated(piece, 1000)), 1000 * sizeof(OrderedJson)) << piece;
  }
  const auto registry = std::make_shared<ClientRegistry>(ClientMemoryLimits{});
  ClientCharge memory(registry->find("a"));
  WorkMeter meter;
  const std::string prompt = "{\"model\":\"m\",\"prompt\":\"" + std::string(8'000'000, 'x') + "\"}";
  EXPECT_EQ(parseCompletionRequest(prompt, meter, memory, kDefaultMaxChoices).prompts.size(), 1u)
      << "a prompt of 8 MB fits in one share";
  EXPECT_GE(memory.bytes(), prompt.size());
  EXPECT_GE(meter.spent(), prompt.size());
}

}  // namespace
}  // namespace chorus::server
