#include "server/openai/chat_messages.h"

#include <fmt/format.h>

#include "server/errors.h"
#include "server/openai/content_parts.h"
#include "server/openai/request_fields.h"
#include "server/openai/request_json.h"

namespace chorus::server {
namespace {

constexpr std::string_view kPartTypes[] = {"text", "refusal"};
constexpr PartRules kPartRules{FieldOwner::kContentPart, kPartTypes};

OrderedJson normalizeToolCalls(const FieldReader& message, const OrderedJson& calls, WorkMeter& meter,
                               ClientCharge& memory) {
  if (!calls.is_array()) message.refuseType("tool_calls", "an array");
  OrderedJson out = calls;
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string path = message.nameOf(fmt::format("tool_calls[{}]", i));
    const FieldReader call(out[i], path);
    if (call.find("function") == nullptr) call.refuse("function", "it is missing");
    OrderedJson& function = out[i]["function"];
    const FieldReader reader(function, path + ".function");
    if (!reader.string("name")) reader.refuse("name", "it is missing");
    const OrderedJson* arguments = reader.find("arguments");
    if (arguments == nullptr || arguments->is_object()) continue;
    const std::string text = reader.string("arguments").value_or("");
    OrderedJson parsed = OrderedJson::object();
    try {
      if (!text.empty()) parsed = parseRequestJson(text, meter, memory);
    } catch (const ApiError& e) {
      if (e.status() != 400) throw;
      reader.refuse("arguments", "expected a JSON object in a string");
    }
    function["arguments"] = std::move(parsed);
  }
  return out;
}

}  // namespace

void checkMessages(const OrderedJson& messages) {
  if (!messages.is_array()) {
    throw ApiError::invalid("Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type");
  }
  if (!messages.empty() && messages.size() <= kMaxChatMessages) return;
  throw ApiError::invalid(fmt::format("Invalid value for 'messages': expected 1 to {} messages.", kMaxChatMessages),
                          "messages", "invalid_value");
}

OrderedJson normalizeMessages(OrderedJson messages, WorkMeter& meter, ClientCharge& memory) {
  checkMessages(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const FieldReader message(messages[i], fmt::format("messages[{}]", i));
    if (message.string("role").value_or("").empty()) message.refuse("role", "it is missing");
    refuseUnservedFields(message, FieldOwner::kMessage);
    const OrderedJson* calls = message.find("tool_calls");
    const OrderedJson* content = message.find("content");
    const bool joined = content != nullptr && content->is_array();
    const bool has_calls = calls != nullptr;
    OrderedJson normal_calls, normal_content;
    if (content == nullptr) {
      if (!has_calls && *message.string("role") != "assistant") message.refuse("content", "it is missing");
    } else if (joined) {
      normal_content = joinTextParts(message, "content", *content, kPartRules);
    } else if (!content->is_string()) {
      message.refuseType("content", "a string or an array of parts");
    }
    if (has_calls) normal_calls = normalizeToolCalls(message, *calls, meter, memory);
    if (joined) messages[i]["content"] = std::move(normal_content);
    if (has_calls) messages[i]["tool_calls"] = std::move(normal_calls);
  }
  return messages;
}

}  // namespace chorus::server
