// Compares renderings with those of transformers, which tests/oracle/text_chat_goldens.py recorded.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/testing/error_of.h"
#include "base/testing/thread_time.h"
#include "support/test_paths.h"
#include "text/tokenizer/tokenizer.h"

namespace chorus {
namespace {

const std::string kGoldens = test::sourceDir().string() + "/tests/goldens/text/chat/";

std::vector<OrderedJson> readLines(const std::string& name) {
  std::ifstream in(kGoldens + name);
  std::vector<OrderedJson> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(parseOrderedJson(line, name));
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

// Returns the rendering, or "error: " and the error's message.
std::string attempt(const std::string& text, const ChatTemplateInput& input) {
  try {
    return ChatTemplate::compile(text, "test")->render(input);
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return std::string("error: ") + e.what();
  }
}

// True if Python printed an address, so that the rendering can't be compared.
bool printsAnAddress(const std::string& text) {
  return text.find(" at 0x") != std::string::npos || text.find("<built-in") != std::string::npos;
}

TEST(ChatTemplateTest, EverySnippet) {
  ChatTemplateInput input;
  input.variables = readLines("context.json")[0];
  int compared = 0;
  for (const OrderedJson& row : readLines("snippets.jsonl")) {
    const std::string text = row["template"];
    const std::string result = attempt(text, input);
    if (row.contains("error")) {
      EXPECT_TRUE(result.starts_with("error: ")) << text << " gives " << result << " instead of " << row["error"];
    } else if (!printsAnAddress(row["output"])) {
      EXPECT_EQ(result, row["output"].get<std::string>()) << text;
    }
    ++compared;
  }
  EXPECT_GT(compared, 500);
}

TEST(ChatTemplateTest, EveryConversation) {
  std::map<std::string, std::string> templates;
  for (const OrderedJson& row : readLines("templates.jsonl")) templates[row["name"]] = row["template"];
  const auto conversations = readLines("conversations.jsonl");
  for (const OrderedJson& row : readLines("renderings.jsonl")) {
    const OrderedJson& conversation = conversations[row["conversation"].get<size_t>()];
    ChatTemplateInput input;
    input.messages = conversation["messages"];
    input.tools = conversation["tools"];
    input.add_generation_prompt = row["add_generation_prompt"];
    input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}};
    const std::string result = attempt(templates.at(row["template"]), input);
    SCOPED_TRACE(row["template"].get<std::string>() + " " + std::to_string(row["conversation"].get<int>()));
    if (row.contains("error"))
      EXPECT_TRUE(result.starts_with("error: ")) << result << row["error"];
    else
      EXPECT_EQ(result, row["output"].get<std::string>());
  }
}

ChatTemplateInput continued(OrderedJson content) {
  ChatTemplateInput input;
  input.messages = {{{"role", "user"}, {"content", "ask"}}, {{"role", "assistant"}, {"content", std::move(content)}}};
  input.continue_final_message = true;
  return input;
}

TEST(ChatTemplateTest, ContinuesTheFinalMessage) {
  const std::string plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}";
  const std::string trimmed = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}";
  EXPECT_EQ(attempt(plain, continued(" so far ")), "<user>ask</><assistant> so far ");
  EXPECT_EQ(attempt(trimmed, continued(" so far ")), "<user>ask</><assistant>so far");
  const std::string parts =
      "{% for m in messages %}{% for p in m.content if p is mapping %}{{ p.text }}|{% endfor %}{% endfor %}";
  EXPECT_EQ(attempt(parts, continued({{{"type", "text"}, {"text", "one"}}, {{"type", "text"}, {"text", "two"}}})),
            "one|two");
  EXPECT_TRUE(
      attempt(plain, continued(nullptr)).starts_with("error: test: continue_final_message is set, but the last"));
  EXPECT_TRUE(
      attempt("{{ messages[0].content }}", continued("x")).ends_with("does not print the last message unchanged"));
}

// A missing key is undefined, and undefined is not none.
TEST(ChatTemplateTest, AMessageWithoutContentIsNotNone) {
  ChatTemplateInput input;
  input.messages = OrderedJson::parse(R"([{"role": "assistant"}, {"role": "assistant", "content": null}])");
  EXPECT_EQ(attempt("{% for m in messages %}{{ m['content'] is not none }} {{ m.content is none }} "
                    "{{ m['content'] is defined }} {{ 'content' in m }};{% endfor %}",
                    input),
            "True False False False;False True True True;");
}

TEST(ChatTemplateTest, DocumentsAndVariablesReachTheTemplate) {
  ChatTemplateInput input;
  EXPECT_EQ(attempt("{{ documents is none }}", input), "True");
  input.documents = {{{"title", "t"}}};
  input.variables = {{"thinking", false}};
  EXPECT_EQ(attempt("{{ documents[0].title }}{{ thinking }}", input), "tFalse");
}

TEST(ChatTemplateTest, AClientsTemplateHasASmallerBudget) {
  const Json config = {
      {"chat_template", {{{"name", "default"}, {"template", "own"}}, {{"name", "rag"}, {"template", "rag"}}}}};
  const Json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  WorkMeter meter;
  const ChatTemplates templates(*Tokenizer::fromJson(tokenizer, config, "t"), "model", meter);
  EXPECT_EQ(templates.render({}), "own");
  EXPECT_EQ(templates.render({}, "rag"), "rag");
  EXPECT_EQ(templates.render({}, "{{ 1 + 1 }}"), "2");
  const std::string busy = "{% for i in range(1000) %}{% for j in range(700) %}{% endfor %}{% endfor %}";
  EXPECT_EQ(attempt(busy, {}), "");
  EXPECT_THAT(errorOf([&] { templates.render({}, busy); }), testing::HasSubstr("bytes of work"));
  EXPECT_THAT(errorOf([&] { templates.render({}, std::string(70000, 'x')); }),
              testing::HasSubstr("the limit is 65536"));
}

TEST(ChatTemplateTest, ErrorsNameTheLine) {
  EXPECT_EQ(attempt("a\n{% if %}", {}), "error: test line 2: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(attempt("a\n\n{{ raise_exception('only\nuser') }}", {}), "error: test line 3: only user");
  EXPECT_EQ(attempt("{% include 'x' %}", {}),
            "error: test line 1: the statement 'include' is not supported in chat templates");
}

// Without limits each of these would take minutes or gigabytes.
TEST(ChatTemplateTest, HostileTemplatesStop) {
  std::string deep = "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}";
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if 1 %}";
  const auto begin = threadTime();
  for (const std::string& text :
       {std::string("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
        std::string("{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
        std::string("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                    "%}{{ ns.x }}"),
        std::string("{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
        std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
        std::string("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
        std::string("{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}"),
        std::string("{{ range(99999) | slice(99999) | map('list') | map('slice', 99999) | map('list') | list }}"),
        std::string("{{ ('\t' * 100000).expandtabs(10000) }}"),
        std::string("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}"),
        std::string("{{ 'a' * 10000000000 }}"),
        std::string("{{ [1] * 1000000000 }}"),
        std::string("{{ range(10 ** 9) }}"),
        std::string("{{ 10 ** 10 ** 10 }}"),
        std::string("{{ 'a'.center(10 ** 15) }}"),
        std::string("{{ '%999999999d' % 1 }}"),
        std::string("{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}"),
        std::string(
            "{{ ('ab' * 100000) | indent('x' * 100000, true) ~ ('\\n' * 100000) | indent('x' * 100000, true, true) }}"),
        deep,
        sum + " }}",
        blocks,
        "{{ " + std::string(5000, '-') + "1 }}",
        "{{ " + std::string(5000, '[')}) {
    EXPECT_TRUE(attempt(text, {}).starts_with("error: ")) << text.substr(0, 80);
  }
  // A chain of namespaces is not an error, but must not be freed by recursion.
  EXPECT_EQ(attempt("{% set top = namespace(last=namespace()) %}{% for i in range(90000) %}{% set n = namespace() %}"
                    "{% set last = top.last %}{% set last.n = n %}{% set top.last = n %}{% endfor %}ok",
                    {}),
            "ok");
  EXPECT_LT(threadTime() - begin, std::chrono::seconds(60));
}

TEST(ChatTemplateTest, KnowsTheTime) {
  ChatTemplateInput input;
  input.now = 86400 * 365;
  EXPECT_EQ(attempt("{{ strftime_now('%Y') }}", input), "1971");
}

TEST(ChatTemplateTest, ThreadsShareATemplate) {
  const auto chat = ChatTemplate::compile("{% for m in messages %}{{ m.content }};{% endfor %}", "t");
  ChatTemplateInput input;
  for (int i = 0; i < 50; ++i) input.messages.push_back({{"content", i}});
  const std::string expected = chat->render(input);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(chat->render(input), expected);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(ChatTemplateTest, RefusesWrongShapes) {
  ChatTemplateInput input;
  input.messages = OrderedJson::parse(R"(["x"])");
  EXPECT_THAT(attempt("", input), testing::HasSubstr("'messages'"));
  input.messages = OrderedJson::array();
  input.tools = OrderedJson::object();
  EXPECT_THAT(attempt("", input), testing::HasSubstr("'tools'"));
}

// A minus sign becomes an expression of 48 bytes.
TEST(ChatTemplatesTest, AllTemplatesShareALimit) {
  std::string text = "{{ a";
  while (text.size() < 900'000) text += '~' + std::string(50, '-') + 'a';
  text += " }}";
  const Json tokenizer = readJsonFile(test::sourceDir().string() + "/tests/goldens/text/tokenizers/gpt2.json");
  const auto errorOfCopies = [&](size_t copies, const std::string& of) {
    Json config;
    for (size_t i = 0; i < copies; ++i) {
      config["chat_template"].push_back({{"name", std::to_string(i)}, {"template", of}});
    }
    return errorOf([&] {
      WorkMeter meter;
      ChatTemplates(*Tokenizer::fromJson(tokenizer, config, "t"), "t", meter);
    });
  };
  EXPECT_EQ(errorOfCopies(1, text), "");
  EXPECT_THAT(errorOfCopies(2, text), testing::HasSubstr("exceeds its limit"));
  EXPECT_EQ(errorOfCopies(kMaxChatTemplates, "x"), "");
  EXPECT_THAT(errorOfCopies(kMaxChatTemplates + 1, "x"), testing::HasSubstr("has 65 templates; the limit is 64"));
}

TEST(ChatTemplatesTest, WhetherTheyNameDevelopers) {
  const Json config = {{"chat_template",
                        {{{"name", "default"}, {"template", "{% if messages[0].role == 'developer' %}x{% endif %}"}},
                         {{"name", "rag"}, {"template", "You are a developer: {{ messages[0].role }}"}},
                         {{"name", "tool_use"}, {"template", "{{ role in [\"developer\", 'system'] }}"}}}}};
  const Json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  WorkMeter meter;
  const ChatTemplates templates(*Tokenizer::fromJson(tokenizer, config, "t"), "t", meter);
  EXPECT_TRUE(templates.nameDeveloper(std::nullopt, false));
  EXPECT_TRUE(templates.nameDeveloper(std::nullopt, true));
  EXPECT_FALSE(templates.nameDeveloper("rag", false));
  EXPECT_FALSE(templates.nameDeveloper("{{ messages[0].role }}", false));
  EXPECT_TRUE(templates.nameDeveloper("{{ messages[0].role == 'developer' }}", false));
  const ChatTemplates none(*Tokenizer::fromJson(tokenizer, Json(), "t"), "t", meter);
  EXPECT_FALSE(none.nameDeveloper(std::nullopt, false));
}

TEST(ChatTemplatesTest, ChoosesByTools) {
  Json config = Json::parse(
      R"({"bos_token": "<|endoftext|>", "chat_template": [{"name": "default", "template": "D{{ bos_token }}"},
                                {"name": "tool_use", "template": "T{{ tools | length }}"}]})");
  const std::string path = test::sourceDir().string() + "/tests/goldens/text/tokenizers/gpt2.json";
  const Json tokenizer = readJsonFile(path);
  WorkMeter meter;
  const ChatTemplates both(*Tokenizer::fromJson(tokenizer, config, "t"), "t", meter);
  ChatTemplateInput input;
  EXPECT_EQ(both.render(input), "D<|endoftext|>");
  input.tools = OrderedJson::parse("[{}]");
  EXPECT_EQ(both.render(input), "T1");
  const ChatTemplates none(*Tokenizer::fromJson(tokenizer, Json(), "t"), "the model", meter);
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(errorOf([&] { none.render(input); }), testing::HasSubstr("the model has no chat template"));
}

}  // namespace
}  // namespace chorus
