#include "server/openai/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "server/errors.h"
#include "server/openai/chat_answer.h"
#include "server/openai/chat_messages.h"
#include "server/openai/chat_rendering.h"
#include "server/openai/model_choice.h"
#include "server/openai/option_fields.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/request_fields.h"
#include "server/openai/request_json.h"
#include "server/work/charged_body.h"

namespace chorus::server {
namespace {

std::string modelName(const ApiContext& context, const std::optional<std::string>& asked) {
  return asked.value_or(context.models.base().name);
}

}  // namespace

TokenizeRequest parseTokenizeRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory) {
  OrderedJson json = parseRequestJson(body, meter, memory);
  OrderedJson messages = takeMember(json, "messages");
  const FieldReader fields(json);
  refuseUnservedFields(fields, FieldOwner::kTokenize);
  TokenizeRequest request;
  request.model = fields.string("model");
  request.prompt = fields.string("prompt");
  request.return_token_strs = fields.boolean("return_token_strs").value_or(false);
  request.chat.rendering = readChatRendering(fields);
  if (!request.prompt) {
    if (messages.is_null()) {
      throw ApiError::invalid("You must provide a prompt or a messages parameter.", "prompt",
                              "missing_required_parameter");
    }
    request.chat.messages = normalizeMessages(std::move(messages), meter, memory);
  } else if (!messages.is_null()) {
    fields.refuse("messages", "it is not allowed beside 'prompt'");
  }
  // The chat template usually writes the special tokens itself.
  request.add_special_tokens = fields.boolean("add_special_tokens").value_or(request.prompt.has_value());
  return request;
}

DetokenizeRequest parseDetokenizeRequest(std::string_view body, WorkMeter& meter, ClientCharge& memory) {
  const OrderedJson json = parseRequestJson(body, meter, memory);
  const FieldReader fields(json);
  refuseUnservedFields(fields, FieldOwner::kDetokenize);
  DetokenizeRequest request;
  request.model = fields.string("model");
  request.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(false);
  const OrderedJson* tokens = fields.find("tokens");
  if (tokens == nullptr) {
    throw ApiError::invalid("You must provide a tokens parameter.", "tokens", "missing_required_parameter");
  }
  if (!tokens->is_array()) fields.refuseType("tokens", "an array of token ids");
  request.tokens = tokenIds(fields, "tokens", *tokens);
  return request;
}

void handleTokenize(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter) {
  ClientCharge memory(request.client);
  TokenizeRequest parsed = parseTokenizeRequest(request.body, meter, memory);
  parsed.chat.options.model = modelName(context, parsed.model);
  ChatPrompt prompt;
  if (parsed.prompt) {
    prompt.model = chooseModel({context.models, request.key}, parsed.chat.options.model, {});
    prompt.text = std::move(*parsed.prompt);
  } else {
    prompt = renderChatPrompt(context, request, parsed.chat, meter);
  }
  const executor::VecTokens tokens = encodeWhole(*prompt.model, prompt.text, parsed.add_special_tokens, meter, memory);
  ChargedBody body(request.client);
  body.add(fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", tokens.size(), context.engine.maxSeqLen()));
  body.addArray(tokens.size(), [&](size_t i) { return std::to_string(tokens[i]); });
  body.add(R"(,"token_strs":)");
  if (parsed.return_token_strs) {
    meter.charge(tokens.size() * sizeof(OrderedJson));
    body.addArray(tokens.size(), [&](size_t i) { return toText(prompt.model->text->tokenText(tokens[i])); });
  } else {
    body.add("null");
  }
  body.add("}");
  exchange->respond(body.response());
}

void handleDetokenize(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter) {
  ClientCharge memory(request.client);
  const DetokenizeRequest parsed = parseDetokenizeRequest(request.body, meter, memory);
  const auto model = chooseModel({context.models, request.key}, modelName(context, parsed.model), {});
  const int32_t vocab = std::max(model->text->vocabSize(), context.engine.vocabSize());
  checkTokenIds("tokens", parsed.tokens, vocab);
  ChargedBody body(request.client);
  body.add(R"({"prompt":")");
  decodePieces(*model, parsed.tokens, parsed.skip_special_tokens, meter, [&](const std::string& piece) {
    const std::string quoted = toText(piece);
    body.add(std::string_view(quoted).substr(1, quoted.size() - 2));
  });
  body.add("\"}");
  exchange->respond(body.response());
}

}  // namespace chorus::server
