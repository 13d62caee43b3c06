#include "server/anthropic/messages_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/errors.h"
#include "server/openai/chat_messages.h"
#include "server/openai/chat_rendering.h"
#include "server/openai/content_parts.h"
#include "server/openai/conversation.h"
#include "server/openai/option_fields.h"
#include "server/openai/request_fields.h"
#include "server/openai/request_json.h"

namespace chorus::server {
namespace {

constexpr std::string_view kBlockTypes[] = {"text"};
constexpr PartRules kBlockRules{FieldOwner::kContentBlock, kBlockTypes};

ApiError missing(std::string_view field) {
  return ApiError::invalid(fmt::format("You must provide a {} parameter.", field), std::string(field),
                           "missing_required_parameter");
}

void addConversation(const FieldReader& fields, const OrderedJson& messages, ChatRequest& chat) {
  chat.messages = OrderedJson::array();
  if (fields.find("system") != nullptr) {
    appendMessage(chat.messages, "system", textOrParts(fields, "system", kBlockRules), true);
  }
  if (messages.is_null()) throw missing("messages");
  checkMessages(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const FieldReader message(messages[i], fmt::format("messages[{}]", i));
    refuseUnservedFields(message, FieldOwner::kAnthropicMessage);
    const std::string role = message.string("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      message.refuse("role", "expected user, assistant or system");
    }
    appendMessage(chat.messages, role, textOrParts(message, "content", kBlockRules), true);
  }
  if (chat.messages.empty()) fields.refuse("messages", "they have no text");
  chat.rendering = readChatTemplate(fields);
  chat.rendering.continue_final_message = chat.messages.back()["role"] == "assistant";
  chat.rendering.add_generation_prompt = !chat.rendering.continue_final_message;
}

}  // namespace

ChatRequest parseMessagesRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory) {
  OrderedJson json = parseRequestJson(body, meter, memory);
  const OrderedJson messages = takeMember(json, "messages");
  const FieldReader fields(json);
  ChatRequest chat;
  chat.options = parseSharedOptions(fields);
  if (const OrderedJson* stops = fields.find("stop_sequences"); stops != nullptr && !stops->is_array()) {
    fields.refuseType("stop_sequences", "an array of strings");
  }
  chat.options.stop = parseStop(fields, "stop_sequences");
  refuseUnservedFields(fields, FieldOwner::kAnthropic);
  parseMaxTokens(fields, "max_tokens", 1, chat.options);
  if (!chat.options.max_tokens) throw missing("max_tokens");
  addConversation(fields, messages, chat);
  return chat;
}

ChatRequest parseCountTokensRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory) {
  OrderedJson json = parseRequestJson(body, meter, memory);
  const OrderedJson messages = takeMember(json, "messages");
  const FieldReader fields(json);
  ChatRequest chat;
  const auto model = fields.string("model");
  if (!model || model->empty()) throw missing("model");
  chat.options.model = *model;
  chat.options.adapters = parseAdapterTerms(fields);
  refuseUnservedFields(fields, FieldOwner::kCountTokens);
  addConversation(fields, messages, chat);
  return chat;
}

}  // namespace chorus::server
