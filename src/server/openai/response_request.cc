#include "server/openai/response_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "server/errors.h"
#include "server/openai/chat_messages.h"
#include "server/openai/chat_rendering.h"
#include "server/openai/content_parts.h"
#include "server/openai/conversation.h"
#include "server/openai/option_fields.h"
#include "server/openai/request_fields.h"
#include "server/openai/request_json.h"
#include "text/unicode.h"

namespace chorus::server {
namespace {

constexpr std::string_view kInputPartTypes[] = {"input_text", "output_text", "text", "refusal"};
constexpr PartRules kInputPartRules{FieldOwner::kInputPart, kInputPartTypes};
constexpr std::string_view kInputRoles[] = {"user", "assistant", "system", "developer"};

void addItem(const OrderedJson& item, size_t index, OrderedJson& messages) {
  const FieldReader fields(item, fmt::format("input[{}]", index));
  const std::string type = fields.string("type").value_or("message");
  if (type != "message") {
    fields.refuse("type", fmt::format("only messages are supported, not '{}'", type.substr(0, 64)));
  }
  refuseUnservedFields(fields, FieldOwner::kInputItem);
  std::string role = fields.string("role").value_or("");
  if (role.empty()) fields.refuse("role", "it is missing");
  if (std::find(std::begin(kInputRoles), std::end(kInputRoles), role) == std::end(kInputRoles)) {
    fields.refuse("role", "expected user, assistant, system or developer");
  }
  if (role == "developer") role = "system";
  appendMessage(messages, role, textOrParts(fields, "content", kInputPartRules), role == "system");
}

void addInput(const FieldReader& fields, const OrderedJson& input, OrderedJson& messages) {
  if (input.is_null()) {
    throw ApiError::invalid("You must provide an input parameter.", "input", "missing_required_parameter");
  }
  if (input.is_string()) return appendMessage(messages, "user", input.get<std::string>(), false);
  if (!input.is_array()) fields.refuseType("input", "a string or an array of items");
  if (input.empty() || input.size() > kMaxChatMessages) {
    fields.refuse("input", fmt::format("expected 1 to {} items", kMaxChatMessages));
  }
  for (size_t i = 0; i < input.size(); ++i) addItem(input[i], i, messages);
  if (messages.empty()) fields.refuse("input", "it has no text");
}

constexpr std::string_view kLogProbs = "message.output_text.logprobs";

// The names of `include` that are known; of them only that of the log probabilities changes the answer.
void parseLogProbs(const FieldReader& fields, GenerationOptions& options) {
  if (const OrderedJson* include = fields.find("include")) {
    if (!include->is_array()) fields.refuseType("include", "an array of strings");
    for (const OrderedJson& name : *include) {
      if (name == kLogProbs) {
        options.log_probs = true;
      } else if (name != "reasoning.encrypted_content") {
        fields.refuse("include", fmt::format("only '{}' and 'reasoning.encrypted_content' are supported", kLogProbs));
      }
    }
  }
  options.top_log_probs = static_cast<int32_t>(fields.integer("top_logprobs", 0, 20).value_or(0));
  if (options.top_log_probs > 0 && !options.log_probs) {
    fields.refuse("top_logprobs", fmt::format("it needs '{}' in 'include'", kLogProbs));
  }
}

// Whether the answer may repeat the metadata, which is kept until then: OpenAI's limits.
bool isRepeatable(const OrderedJson& metadata) {
  constexpr size_t kMostPairs = 16, kLongestKey = 64, kLongestValue = 512;  // characters
  if (!metadata.is_object() || metadata.size() > kMostPairs) return false;
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string() || countCharacters(key) > kLongestKey) return false;
    if (countCharacters(value.get_ref<const std::string&>()) > kLongestValue) return false;
  }
  return true;
}

}  // namespace

ResponseRequest parseResponseRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory) {
  OrderedJson json = parseRequestJson(body, meter, memory);
  const OrderedJson input = takeMember(json, "input");
  const FieldReader fields(json);
  ResponseRequest request;
  request.chat.options = parseSharedOptions(fields);
  request.chat.options.stop = parseStop(fields, "stop");
  if (const OrderedJson* text = fields.find("text")) FieldReader(*text, "text");
  refuseUnservedFields(fields, FieldOwner::kResponse);
  parseMaxTokens(fields, "max_output_tokens", 1, request.chat.options);
  parseLogProbs(fields, request.chat.options);
  request.chat.rendering = readChatTemplate(fields);
  request.chat.messages_field = "input";
  request.chat.messages = OrderedJson::array();
  request.instructions = fields.string("instructions");
  if (request.instructions) appendMessage(request.chat.messages, "system", *request.instructions, true);
  addInput(fields, input, request.chat.messages);
  if (const OrderedJson* metadata = fields.find("metadata"); metadata != nullptr && isRepeatable(*metadata)) {
    request.metadata = *metadata;
  }
  if (fields.find("tool_choice") != nullptr) request.tool_choice = *fields.string("tool_choice");
  return request;
}

}  // namespace chorus::server
