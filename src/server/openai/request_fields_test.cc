#include "server/openai/request_fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "server/anthropic/messages_request.h"
#include "server/errors.h"
#include "server/openai/openai_types.h"
#include "server/openai/response_request.h"
#include "server/openai/tokenize.h"
#include "support/test_paths.h"

namespace chorus::server {
namespace {

// An accepted request that has an object of the kind.
struct Place {
  FieldOwner owner;
  const char* body;
  const char* at;      // JSON pointer to the object
  const char* prefix;  // of the names of its members in errors
};

constexpr const char* kChatBody =
    R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})";
constexpr const char* kResponseBody =
    R"({"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]})";
constexpr const char* kAnthropicBody =
    R"({"model":"m","max_tokens":4,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})";
constexpr Place kPlaces[] = {
    {FieldOwner::kCompletion, R"({"model":"m","prompt":"hi"})", "", ""},
    {FieldOwner::kChat, kChatBody, "", ""},
    {FieldOwner::kMessage, kChatBody, "/messages/0", "messages[0]."},
    {FieldOwner::kContentPart, kChatBody, "/messages/0/content/0", "messages[0].content[0]."},
    {FieldOwner::kResponse, kResponseBody, "", ""},
    {FieldOwner::kInputItem, kResponseBody, "/input/0", "input[0]."},
    {FieldOwner::kInputPart, kResponseBody, "/input/0/content/0", "input[0].content[0]."},
    {FieldOwner::kAnthropic, kAnthropicBody, "", ""},
    {FieldOwner::kCountTokens, kAnthropicBody, "", ""},
    {FieldOwner::kAnthropicMessage, kAnthropicBody, "/messages/0", "messages[0]."},
    {FieldOwner::kContentBlock, kAnthropicBody, "/messages/0/content/0", "messages[0].content[0]."},
    {FieldOwner::kTokenize, R"({"prompt":"hi"})", "", ""},
    {FieldOwner::kDetokenize, R"({"tokens":[1]})", "", ""},
};

bool isBody(const Place& place) { return *place.at == 0; }

// How errors name a field.
std::string pathOf(const Place& place, std::string_view name) { return fmt::format("{}{}", place.prefix, name); }

// An accepted request with one more field, and with the fields that this one needs.
OrderedJson bodyWith(const Place& place, std::string_view name, const OrderedJson& value) {
  OrderedJson body = OrderedJson::parse(place.body);
  if (name.starts_with("stream_options")) body["stream"] = true;
  if (name == "stream_options.continuous_usage_stats") body["stream_options"]["include_usage"] = true;
  if (name == "top_logprobs" && place.owner == FieldOwner::kChat) body["logprobs"] = true;
  if (name == "top_logprobs" && place.owner == FieldOwner::kResponse)
    body["include"] = {"message.output_text.logprobs"};
  // Without a token, only an echo leaves something to answer.
  if (name == "max_tokens" && place.owner == FieldOwner::kCompletion) body["echo"] = true;
  const bool turns = place.owner == FieldOwner::kChat || place.owner == FieldOwner::kTokenize;
  if (name == "continue_final_message" && turns) body["add_generation_prompt"] = false;
  if (name == "messages" && place.owner == FieldOwner::kTokenize) body.erase("prompt");
  OrderedJson* at = &body[OrderedJson::json_pointer(place.at)];
  // A part of the type "refusal" has its text in the member of that name.
  const bool part = place.owner == FieldOwner::kContentPart || place.owner == FieldOwner::kInputPart;
  if (part && (name == "refusal" || value == "refusal")) (*at) = {{"type", "refusal"}, {"refusal", "no"}};
  const size_t dot = name.find('.');
  std::string member(name.substr(0, dot));
  if (dot != std::string_view::npos) {
    at = &(*at)[member];
    member = name.substr(dot + 1) == "*" ? "any_name" : name.substr(dot + 1);
  }
  (*at)[member] = value;
  return body;
}

void parseBody(FieldOwner owner, const std::string& body) {
  constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();
  WorkMeter meter;
  ClientCharge memory;
  switch (owner) {
    case FieldOwner::kCompletion:
      parseCompletionRequest(body, kNoLimit);
      return;
    case FieldOwner::kChat:
    case FieldOwner::kMessage:
    case FieldOwner::kContentPart:
      parseChatRequest(body, kNoLimit);
      return;
    case FieldOwner::kResponse:
    case FieldOwner::kInputItem:
    case FieldOwner::kInputPart:
      parseResponseRequest(body, meter, memory);
      return;
    case FieldOwner::kAnthropic:
    case FieldOwner::kAnthropicMessage:
    case FieldOwner::kContentBlock:
      parseMessagesRequest(body, meter, memory);
      return;
    case FieldOwner::kCountTokens:
      parseCountTokensRequest(body, meter, memory);
      return;
    case FieldOwner::kTokenize:
      parseTokenizeRequest(body, meter, memory);
      return;
    case FieldOwner::kDetokenize:
      parseDetokenizeRequest(body, meter, memory);
      return;
  }
}

// "accepted", or the error as "param code: message".
std::string outcome(const Place& place, const OrderedJson& body) {
  try {
    parseBody(place.owner, body.dump());
  } catch (const ApiError& e) {
    const Json error = Json::parse(e.body())["error"];
    EXPECT_EQ(e.status(), 400);
    return fmt::format("{} {}: {}", error["param"].is_null() ? "-" : error["param"].get<std::string>(),
                       error["code"].is_null() ? "-" : error["code"].get<std::string>(),
                       error["message"].get<std::string>());
  }
  return "accepted";
}

template <typename Check>
void forEveryRow(FieldUse use, const Check& check) {
  for (const Place& place : kPlaces) {
    for (const FieldTable* table : requestFields(place.owner)) {
      for (const RequestField& field : table->rows) {
        SCOPED_TRACE(fmt::format("{} of {}", pathOf(place, field.name), table->name));
        if (field.use == use) check(place, field);
      }
    }
  }
}

TEST(RequestFields, EveryRefusedFieldIsRefusedByName) {
  forEveryRow(FieldUse::kRefused, [](const Place& place, const RequestField& field) {
    const std::string name = pathOf(place, field.name.ends_with(".*") ? "nvext.any_name" : field.name);
    for (const char* wish : {"7", R"("wish")", R"({"a":1})", "[1]"}) {
      const std::string why =
          field.instead.empty() ? " with this value; leave it out" : fmt::format(": {}", field.instead);
      EXPECT_EQ(outcome(place, bodyWith(place, field.name, OrderedJson::parse(wish))),
                fmt::format("{} unsupported_parameter: '{}' is not supported{}.", name, name, why));
    }
  });
}

TEST(RequestFields, AValueThatAsksForNothingPasses) {
  forEveryRow(FieldUse::kRefused, [](const Place& place, const RequestField& field) {
    EXPECT_EQ(outcome(place, bodyWith(place, field.name, nullptr)), "accepted");
    const OrderedJson harmless = OrderedJson::parse(field.harmless);
    ASSERT_TRUE(harmless.is_array());
    for (const OrderedJson& value : harmless) {
      EXPECT_EQ(outcome(place, bodyWith(place, field.name, value)), "accepted") << value;
    }
    if (field.disabled_by.empty()) return;
    OrderedJson body = bodyWith(place, field.name, OrderedJson::parse(R"([{"name":"f"}])"));
    EXPECT_NE(outcome(place, body), "accepted");
    const bool anthropic = place.owner == FieldOwner::kAnthropic || place.owner == FieldOwner::kCountTokens;
    body[std::string(field.disabled_by)] = anthropic ? OrderedJson{{"type", "none"}} : OrderedJson("none");
    EXPECT_EQ(outcome(place, body), "accepted");
  });
}

TEST(RequestFields, EveryInertFieldPassesWithAnyValue) {
  forEveryRow(FieldUse::kInert, [](const Place& place, const RequestField& field) {
    for (const char* value : {"null", "true", "-1", "0.5", R"("x")", "[1]", R"({"a":{"b":[]}})"}) {
      EXPECT_EQ(outcome(place, bodyWith(place, field.name, OrderedJson::parse(value))), "accepted") << value;
    }
  });
}

// Sends a value of a type that no field accepts: an error shows that the field is read.
TEST(RequestFields, EveryServedFieldIsRead) {
  const std::set<std::string> passed_to_the_template = {"name",      "tool_call_id",      "refusal",
                                                        "reasoning", "reasoning_content", "thinking"};
  forEveryRow(FieldUse::kServed, [&](const Place& place, const RequestField& field) {
    const std::string name(field.name);
    if (place.owner == FieldOwner::kMessage && passed_to_the_template.contains(name)) return;
    const OrderedJson wrong = OrderedJson::parse(name == "chat_template_kwargs" ? R"("x")" : R"({"wrong":{"a":1}})");
    const std::string result = outcome(place, bodyWith(place, field.name, wrong));
    const bool object_of_flags = name == "stream_options" || name == "text";
    if (!object_of_flags) {
      EXPECT_TRUE(result.starts_with(pathOf(place, name))) << result;
    }
  });
}

TEST(RequestFields, NoFieldIsInTwoRowsAndHintsNameServedFields) {
  for (const Place& place : kPlaces) {
    std::set<std::string_view> names, served;
    const auto tables = requestFields(place.owner);
    for (const FieldTable* table : tables) {
      for (const RequestField& field : table->rows) {
        EXPECT_TRUE(names.insert(field.name).second) << field.name << " of " << table->name;
        if (field.use == FieldUse::kServed) served.insert(field.name);
        const bool bare = field.instead.empty() && field.disabled_by.empty();
        EXPECT_TRUE(bare || field.use == FieldUse::kRefused) << field.name;
        EXPECT_EQ(field.schema.empty(), field.use != FieldUse::kServed) << field.name;
      }
    }
    if (!isBody(place)) continue;
    for (const FieldTable* table : tables) {
      for (const RequestField& field : table->rows) {
        if (!field.instead.starts_with("use '")) continue;
        const std::string_view hint = field.instead.substr(5, field.instead.size() - 6);
        EXPECT_TRUE(served.contains(hint)) << field.name << ": " << hint;
      }
    }
  }
}

// Values that a schema accepts, and values that it refuses.
struct Samples {
  std::vector<OrderedJson> good, bad;
};

Samples samplesOf(const OrderedJson& schema) {
  Samples out;
  if (schema.contains("enum")) {
    out.good = schema["enum"].get<std::vector<OrderedJson>>();
    out.bad = {"nobody", 5};
  } else if (schema.contains("anyOf")) {
    for (const OrderedJson& one : schema["anyOf"]) {
      const auto good = samplesOf(one).good;
      out.good.insert(out.good.end(), good.begin(), good.end());
    }
    out.bad = {5, true};
  }
  const std::string type = schema.value("type", "");
  if (type == "boolean") {
    out = {{true, false}, {1, "true"}};
  } else if (type == "integer" || type == "number") {
    const OrderedJson step = type == "integer" ? OrderedJson(1) : OrderedJson(0.01);
    out = {{1}, {"1", true}};
    if (type == "integer") out.bad.emplace_back(1.5);
    for (const auto& [bound, sign] : {std::pair{"minimum", -1}, std::pair{"maximum", 1}}) {
      if (!schema.contains(bound)) continue;
      out.good.push_back(schema[bound]);
      if (type == "integer") {
        out.bad.emplace_back(schema[bound].get<int64_t>() + sign);
      } else {
        out.bad.emplace_back(schema[bound].get<double>() + sign * step.get<double>());
      }
    }
    if (schema.contains("exclusiveMinimum")) out.bad.push_back(schema["exclusiveMinimum"]);
  } else if (type == "string") {
    out = {{"x"}, {5}};
    if (schema.contains("minLength")) out.bad.emplace_back("");
    if (schema.contains("maxLength")) {
      const auto most = schema["maxLength"].get<size_t>();
      out.good.emplace_back(std::string(most, 'x'));
      out.bad.emplace_back(std::string(most + 1, 'x'));
    }
  } else if (type == "array") {
    out = {{}, {"x", OrderedJson::object()}};
    if (schema.contains("minItems")) out.bad.push_back(OrderedJson::array());
    const Samples items = samplesOf(schema["items"]);
    for (const OrderedJson& one : items.good) out.good.push_back(OrderedJson::array({one}));
    for (const OrderedJson& one : items.bad) out.bad.push_back(OrderedJson::array({one}));
    if (schema.contains("maxItems") && !items.good.empty()) {
      out.bad.emplace_back(std::vector<OrderedJson>(schema["maxItems"].get<size_t>() + 1, items.good.front()));
    }
  } else if (type == "object") {
    out = {{}, {"x", 5}};
    if (!schema.contains("required")) out.good.push_back(OrderedJson::object());
  }
  return out;
}

// The schemas are those of /openapi.json.
TEST(RequestFields, TheParsersAgreeWithTheSchemas) {
  size_t samples = 0;
  forEveryRow(FieldUse::kServed, [&](const Place& place, const RequestField& field) {
    const Samples values = samplesOf(OrderedJson::parse(field.schema));
    samples += values.good.size() + values.bad.size();
    for (const OrderedJson& value : values.good) {
      EXPECT_EQ(outcome(place, bodyWith(place, field.name, value)), "accepted") << value.dump().substr(0, 99);
    }
    for (const OrderedJson& value : values.bad) {
      const std::string result = outcome(place, bodyWith(place, field.name, value));
      EXPECT_TRUE(result.starts_with(pathOf(place, field.name))) << value.dump().substr(0, 99) << ": " << result;
    }
    if (!field.required) return;
    OrderedJson without = bodyWith(place, field.name, nullptr);
    EXPECT_TRUE(outcome(place, without).starts_with(pathOf(place, field.name))) << "it is required";
  });
  EXPECT_GT(samples, 800u);
}

TEST(RequestFields, UnknownFieldsPass) {
  for (const Place& place : kPlaces) {
    EXPECT_EQ(outcome(place, bodyWith(place, "a_field_of_nobody", OrderedJson::parse(R"({"a":[1]})"))), "accepted");
  }
  const Place& chat = kPlaces[1];
  EXPECT_EQ(outcome(chat, bodyWith(chat, "stream_options.a_field_of_nobody", 1)), "accepted");
  EXPECT_EQ(outcome(chat, bodyWith(chat, "nvext", 7)),
            "nvext unsupported_parameter: 'nvext' is not supported with this value; leave it out.");
}

// Writes the lists of docs/compatibility.md from the tables.
std::string fieldsPage() {
  const auto list = [](std::span<const RequestField> table, std::string_view prefix, FieldUse use) {
    std::string text;
    for (const RequestField& field : table) {
      if (field.use == use) text += fmt::format("{}`{}{}`", text.empty() ? "" : ", ", prefix, field.name);
    }
    return text.empty() ? std::string("none") : text;
  };
  // Refused fields, grouped by what to do instead, in the order of the table.
  const auto refused = [](std::span<const RequestField> table, std::string_view prefix) {
    std::vector<std::pair<std::string_view, std::string>> groups;
    for (const RequestField& field : table) {
      if (field.use != FieldUse::kRefused) continue;
      auto group = groups.begin();
      while (group != groups.end() && group->first != field.instead) ++group;
      if (group == groups.end()) group = groups.insert(groups.end(), {field.instead, ""});
      group->second += fmt::format("{}`{}{}`", group->second.empty() ? "" : ", ", prefix, field.name);
    }
    std::string text;
    for (const auto& [instead, names] : groups)
      text += fmt::format("| {} | {} |\n", names, instead.empty() ? "-" : instead);
    return text;
  };
  std::string page;
  for (const auto& [name, title, prefix, table] : fieldTables()) {
    if (!page.empty()) page += '\n';
    page += fmt::format("### {}\n\nServed: {}.\n\nInert: {}.\n", title, list(table, prefix, FieldUse::kServed),
                        list(table, prefix, FieldUse::kInert));
    const std::string groups = refused(table, prefix);
    if (!groups.empty()) page += "\n| refused | instead |\n|---|---|\n" + groups;
  }
  return page;
}

TEST(RequestFields, ThePageHasTheListsOfTheTables) {
  const std::string path = test::sourceDir().string() + "/docs/compatibility.md";
  EXPECT_NE(readFile(path, size_t{1} << 20).find(fieldsPage()), std::string::npos)
      << "docs/compatibility.md must have these lists:\n\n"
      << fieldsPage();
}

}  // namespace
}  // namespace chorus::server
