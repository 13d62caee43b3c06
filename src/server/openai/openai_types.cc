#include "server/openai/openai_types.h"

#include <fmt/format.h>

#include <limits>

#include "base/exact_json.h"
#include "server/errors.h"
#include "server/openai/chat_messages.h"
#include "server/openai/chat_rendering.h"
#include "server/openai/option_fields.h"
#include "server/openai/request_fields.h"
#include "server/openai/request_json.h"

namespace chorus::server {
namespace {

constexpr size_t kMaxPrompts = 1024;

// n or best_of: sequences of one prompt.
std::optional<int32_t> parseChoices(const FieldReader& fields, std::string_view name, int32_t max_choices) {
  const auto value = fields.integer(name, 1, std::numeric_limits<int32_t>::max());
  if (!value) return std::nullopt;
  if (*value > max_choices) {
    fields.refuse(name, fmt::format("at most {} choices in one request (--max_choices)", max_choices));
  }
  return static_cast<int32_t>(*value);
}

// Options that only completions and chat completions have.
void parseOpenAiOptions(const FieldReader& fields, int32_t max_choices, GenerationOptions& options) {
  options.stop = parseStop(fields, "stop");
  options.choices = parseChoices(fields, "n", max_choices).value_or(1);
  options.generated = options.choices;
  if (const OrderedJson* stream_options = fields.find("stream_options")) {
    if (!options.stream) fields.refuse("stream_options", "it is only allowed when 'stream' is true");
    const FieldReader flags(*stream_options, "stream_options");
    options.include_usage = flags.boolean("include_usage").value_or(false);
    options.continuous_usage = flags.boolean("continuous_usage_stats").value_or(false);
    if (options.continuous_usage && !options.include_usage) {
      flags.refuse("continuous_usage_stats", "it needs 'include_usage' to be true");
    }
  }
}

std::vector<CompletionRequest::Prompt> parsePrompts(const FieldReader& fields, OrderedJson prompt) {
  if (prompt.is_null()) {
    throw ApiError::invalid("You must provide a prompt parameter.", "prompt", "missing_required_parameter");
  }
  std::vector<CompletionRequest::Prompt> prompts;
  if (prompt.is_string()) {
    prompts.emplace_back(std::move(prompt.get_ref<std::string&>()));
    return prompts;
  }
  constexpr std::string_view kShapes = "a string, an array of strings, token ids or arrays of token ids";
  if (!prompt.is_array()) fields.refuseType("prompt", kShapes);
  if (prompt.empty()) fields.refuse("prompt", "it must not be empty");
  if (prompt.front().is_number() || wideIntegerDigits(prompt.front())) {
    prompts.emplace_back(tokenIds(fields, "prompt", prompt));
    return prompts;
  }
  if (prompt.size() > kMaxPrompts) fields.refuse("prompt", fmt::format("at most {} prompts", kMaxPrompts));
  const bool texts = prompt.front().is_string();
  for (OrderedJson& one : prompt) {
    if (texts ? !one.is_string() : !one.is_array()) fields.refuseType("prompt", kShapes);
    if (texts) {
      prompts.emplace_back(std::move(one.get_ref<std::string&>()));
    } else {
      if (one.empty()) fields.refuse("prompt", "an array of token ids must not be empty");
      prompts.emplace_back(tokenIds(fields, "prompt", one));
    }
  }
  return prompts;
}

}  // namespace

CompletionRequest parseCompletionRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory,
                                         int32_t max_choices) {
  OrderedJson json = parseRequestJson(body, meter, memory);
  OrderedJson prompt = takeMember(json, "prompt");
  const FieldReader fields(json);
  CompletionRequest request;
  request.options = parseSharedOptions(fields);
  parseOpenAiOptions(fields, max_choices, request.options);
  refuseUnservedFields(fields, FieldOwner::kCompletion);
  if (const auto bestOf = parseChoices(fields, "best_of", max_choices)) {
    if (*bestOf < request.options.choices) fields.refuse("best_of", "it must not be less than n");
    if (*bestOf > request.options.choices && request.options.stream) {
      fields.refuse("best_of", "more than n can't be streamed");
    }
    request.options.generated = *bestOf;
  }
  request.prompts = parsePrompts(fields, std::move(prompt));
  request.echo = fields.boolean("echo").value_or(false);
  // max_tokens may be 0 only together with echo: otherwise the answer would be empty.
  parseMaxTokens(fields, "max_tokens", request.echo ? 0 : 1, request.options);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  if (const auto alternatives = fields.integer("logprobs", 0, 5)) {
    request.options.log_probs = true;
    request.options.top_log_probs = static_cast<int32_t>(*alternatives);
    request.options.prompt_log_probs = request.echo;
  }
  const auto sequences = request.prompts.size() * static_cast<size_t>(request.options.generated);
  if (request.options.generated > 1 && sequences > static_cast<size_t>(max_choices)) {
    const char* field = request.options.generated > request.options.choices ? "best_of" : "n";
    fields.refuse(field,
                  fmt::format("prompts times {} may be at most {} in one request (--max_choices)", field, max_choices));
  }
  return request;
}

CompletionRequest parseCompletionRequest(std::string_view body, int32_t max_choices) {
  WorkMeter meter;
  ClientCharge memory;
  return parseCompletionRequest(body, meter, memory, max_choices);
}

ChatRequest parseChatRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory, int32_t max_choices) {
  OrderedJson json = parseRequestJson(body, meter, memory);
  OrderedJson messages = takeMember(json, "messages");
  const FieldReader fields(json);
  ChatRequest request;
  request.options = parseSharedOptions(fields);
  parseOpenAiOptions(fields, max_choices, request.options);
  refuseUnservedFields(fields, FieldOwner::kChat);
  parseMaxTokens(fields, "max_tokens", 1, request.options);
  parseMaxTokens(fields, "max_completion_tokens", 1, request.options);
  request.options.log_probs = fields.boolean("logprobs").value_or(false);
  if (const auto alternatives = fields.integer("top_logprobs", 0, 20)) {
    if (!request.options.log_probs) fields.refuse("top_logprobs", "it needs 'logprobs' to be true");
    request.options.top_log_probs = static_cast<int32_t>(*alternatives);
  }
  if (messages.is_null()) {
    throw ApiError::invalid("You must provide a messages parameter.", "messages", "missing_required_parameter");
  }
  request.messages = normalizeMessages(std::move(messages), meter, memory);
  request.rendering = readChatRendering(fields);
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(false);
  return request;
}

ChatRequest parseChatRequest(std::string_view body, int32_t max_choices) {
  WorkMeter meter;
  ClientCharge memory;
  return parseChatRequest(body, meter, memory, max_choices);
}

}  // namespace chorus::server
