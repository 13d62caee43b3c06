#include "server/openai/request_fields.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.h"
#include "server/errors.h"
#include "server/openai/openai_types.h"
#include "support/test_paths.h"

namespace chorus::server {
namespace {

constexpr FieldOwner kOwners[] = {FieldOwner::kCompletion, FieldOwner::kChat, FieldOwner::kMessage,
                                  FieldOwner::kContentPart};

// How errors name a field.
std::string pathOf(FieldOwner owner, std::string_view name) {
  switch (owner) {
    case FieldOwner::kMessage:
      return fmt::format("messages[0].{}", name);
    case FieldOwner::kContentPart:
      return fmt::format("messages[0].content[0].{}", name);
    default:
      return std::string(name);
  }
}

// An accepted request with one more field.
OrderedJson bodyWith(FieldOwner owner, std::string_view name, const OrderedJson& value) {
  OrderedJson body =
      OrderedJson::parse(owner == FieldOwner::kCompletion
                             ? R"({"model":"m","prompt":"hi"})"
                             : R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})");
  OrderedJson* at = &body;
  if (owner == FieldOwner::kMessage || owner == FieldOwner::kContentPart) at = &body["messages"][0];
  if (owner == FieldOwner::kContentPart) at = &(*at)["content"][0];
  if (name.starts_with("stream_options")) body["stream"] = true;
  const size_t dot = name.find('.');
  std::string member(name.substr(0, dot));
  if (dot != std::string_view::npos) {
    at = &((*at)[member] = OrderedJson::object());
    member = name.substr(dot + 1) == "*" ? "any_name" : name.substr(dot + 1);
  }
  (*at)[member] = value;
  return body;
}

// "accepted", or the error as "param code: message".
std::string outcome(FieldOwner owner, const OrderedJson& body) {
  try {
    if (owner == FieldOwner::kCompletion)
      parseCompletionRequest(body.dump());
    else
      parseChatRequest(body.dump());
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
  for (const FieldOwner owner : kOwners) {
    for (const auto table : requestFields(owner)) {
      for (const RequestField& field : table) {
        SCOPED_TRACE(pathOf(owner, field.name));
        if (field.use == use) check(owner, field);
      }
    }
  }
}

TEST(RequestFields, EveryRefusedFieldIsRefusedByName) {
  forEveryRow(FieldUse::kRefused, [](FieldOwner owner, const RequestField& field) {
    const std::string name = pathOf(owner, field.name.ends_with(".*") ? "nvext.any_name" : field.name);
    for (const char* wish : {"7", R"("wish")", R"({"a":1})", "[1]"}) {
      const std::string why =
          field.instead.empty() ? " with this value; leave it out" : fmt::format(": {}", field.instead);
      EXPECT_EQ(outcome(owner, bodyWith(owner, field.name, OrderedJson::parse(wish))),
                fmt::format("{} unsupported_parameter: '{}' is not supported{}.", name, name, why));
    }
  });
}

TEST(RequestFields, AValueThatAsksForNothingPasses) {
  forEveryRow(FieldUse::kRefused, [](FieldOwner owner, const RequestField& field) {
    EXPECT_EQ(outcome(owner, bodyWith(owner, field.name, nullptr)), "accepted");
    const OrderedJson harmless = OrderedJson::parse(field.harmless);
    ASSERT_TRUE(harmless.is_array());
    for (const OrderedJson& value : harmless) {
      EXPECT_EQ(outcome(owner, bodyWith(owner, field.name, value)), "accepted") << value;
    }
    if (field.disabled_by.empty()) return;
    OrderedJson body = bodyWith(owner, field.name, OrderedJson::parse(R"([{"name":"f"}])"));
    EXPECT_NE(outcome(owner, body), "accepted");
    body[std::string(field.disabled_by)] = "none";
    EXPECT_EQ(outcome(owner, body), "accepted");
  });
}

TEST(RequestFields, EveryInertFieldPassesWithAnyValue) {
  forEveryRow(FieldUse::kInert, [](FieldOwner owner, const RequestField& field) {
    for (const char* value : {"null", "true", "-1", "0.5", R"("x")", "[1]", R"({"a":{"b":[]}})"}) {
      EXPECT_EQ(outcome(owner, bodyWith(owner, field.name, OrderedJson::parse(value))), "accepted") << value;
    }
  });
}

// Sends a value of a type that no field accepts: an error shows that the field is read.
TEST(RequestFields, EveryServedFieldIsRead) {
  const std::set<std::string> passed_to_the_template = {"name",      "tool_call_id",      "refusal",
                                                        "reasoning", "reasoning_content", "thinking"};
  forEveryRow(FieldUse::kServed, [&](FieldOwner owner, const RequestField& field) {
    const std::string name(field.name);
    if (owner == FieldOwner::kMessage && passed_to_the_template.contains(name)) return;
    if (owner == FieldOwner::kContentPart && name == "refusal") return;  // read only in parts of that type
    const OrderedJson wrong = OrderedJson::parse(name == "chat_template_kwargs" ? R"("x")" : R"({"wrong":{"a":1}})");
    const std::string result = outcome(owner, bodyWith(owner, field.name, wrong));
    const bool object_of_flags = name == "stream_options";
    if (!object_of_flags) {
      EXPECT_TRUE(result.starts_with(pathOf(owner, name))) << result;
    }
  });
}

TEST(RequestFields, NoFieldIsInTwoRowsAndHintsNameServedFields) {
  for (const FieldOwner owner : kOwners) {
    std::set<std::string_view> names, served;
    for (const auto table : requestFields(owner)) {
      for (const RequestField& field : table) {
        EXPECT_TRUE(names.insert(field.name).second) << field.name;
        if (field.use == FieldUse::kServed) served.insert(field.name);
        const bool bare = field.instead.empty() && field.disabled_by.empty();
        EXPECT_TRUE(bare || field.use == FieldUse::kRefused) << field.name;
      }
    }
    if (owner != FieldOwner::kCompletion && owner != FieldOwner::kChat) continue;
    for (const auto table : requestFields(owner)) {
      for (const RequestField& field : table) {
        if (!field.instead.starts_with("use '")) continue;
        const std::string_view hint = field.instead.substr(5, field.instead.size() - 6);
        EXPECT_TRUE(served.contains(hint)) << field.name << ": " << hint;
      }
    }
  }
}

TEST(RequestFields, UnknownFieldsPass) {
  for (const FieldOwner owner : kOwners) {
    EXPECT_EQ(outcome(owner, bodyWith(owner, "a_field_of_nobody", OrderedJson::parse(R"({"a":[1]})"))), "accepted");
  }
  EXPECT_EQ(outcome(FieldOwner::kChat, bodyWith(FieldOwner::kChat, "stream_options.a_field_of_nobody", 1)), "accepted");
  EXPECT_EQ(outcome(FieldOwner::kChat, bodyWith(FieldOwner::kChat, "nvext", 7)),
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
  const auto common = requestFields(FieldOwner::kCompletion).front();
  const std::tuple<const char*, std::span<const RequestField>, const char*> sections[] = {
      {"Completions and chat completions", common, ""},
      {"Completions alone", requestFields(FieldOwner::kCompletion).back(), ""},
      {"Chat completions alone", requestFields(FieldOwner::kChat).back(), ""},
      {"Messages", requestFields(FieldOwner::kMessage).front(), "messages[]."},
      {"Parts of a message's content", requestFields(FieldOwner::kContentPart).front(), "content[]."},
  };
  std::string page;
  for (const auto& [title, table, prefix] : sections) {
    if (!page.empty()) page += '\n';
    page += fmt::format("### {}\n\nServed: {}.\n\nInert: {}.\n\n| refused | instead |\n|---|---|\n{}", title,
                        list(table, prefix, FieldUse::kServed), list(table, prefix, FieldUse::kInert),
                        refused(table, prefix));
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
