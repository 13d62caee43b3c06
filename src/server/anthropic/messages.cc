#include "server/anthropic/messages.h"

#include <utility>

#include "server/anthropic/messages_request.h"
#include "server/errors.h"
#include "server/http/http_wire.h"
#include "server/openai/chat_answer.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/text_answer_writer.h"

namespace chorus::server {
namespace {

// Tokens that came from the cache are not part of Anthropic's input_tokens.
OrderedJson messageUsage(const GenerationUsage& usage) {
  OrderedJson json = OrderedJson::object();
  json["input_tokens"] = usage.prompt_tokens - usage.cached_tokens;
  json["cache_creation_input_tokens"] = 0;
  json["cache_read_input_tokens"] = usage.cached_tokens;
  json["output_tokens"] = usage.completion_tokens;
  return json;
}

OrderedJson textBlock(std::string text) {
  OrderedJson json = OrderedJson::object();
  json["type"] = "text";
  json["text"] = std::move(text);
  return json;
}

class MessageWriter : public TextAnswerWriter {
 public:
  MessageWriter(AnswerSetup setup, ErrorForm form)
      : TextAnswerWriter(std::move(setup), std::move(form), false), id_(randomId("msg_")) {}

 protected:
  std::string wholeAnswer(Answer answer) override {
    OrderedJson json = message(answer.usage);
    json["content"].push_back(textBlock(std::move(answer.text)));
    const OrderedJson end = endOf(answer);
    for (const auto& [name, value] : end.items()) json[name] = value;
    return toText(json);
  }

  void streamBegins() override {}

  // message_start has the usage, which is not known before the first token.
  void streamStarts(const GenerationUsage& usage) override {
    GenerationUsage of_prompt = usage;
    of_prompt.completion_tokens = 0;
    event("message_start", {{"message", message(of_prompt)}});
    event("content_block_start", {{"index", 0}, {"content_block", textBlock("")}});
    event("ping", OrderedJson::object());
  }

  bool streamText(const std::string& text) override {
    return event("content_block_delta", {{"index", 0}, {"delta", {{"type", "text_delta"}, {"text", text}}}});
  }

  void streamEnds(const Answer& answer) override {
    event("content_block_stop", {{"index", 0}});
    event("message_delta", {{"delta", endOf(answer)}, {"usage", messageUsage(answer.usage)}});
    event("message_stop", OrderedJson::object());
  }

  void streamFails(const ApiError& error) override { send("error", error.body(errorForm())); }

 private:
  OrderedJson message(const GenerationUsage& usage) const {
    OrderedJson json = OrderedJson::object();
    json["id"] = id_;
    json["type"] = "message";
    json["role"] = "assistant";
    json["model"] = model().name;
    json["content"] = OrderedJson::array();
    json["stop_reason"] = nullptr;
    json["stop_sequence"] = nullptr;
    json["usage"] = messageUsage(usage);
    return json;
  }

  static OrderedJson endOf(const Answer& answer) {
    const bool by_text = answer.stop_reason.is_string();
    OrderedJson json = OrderedJson::object();
    json["stop_reason"] = answer.finish_reason == "length" ? "max_tokens" : by_text ? "stop_sequence" : "end_turn";
    json["stop_sequence"] = by_text ? answer.stop_reason : OrderedJson();
    return json;
  }

  bool event(const char* type, OrderedJson members) {
    OrderedJson json = OrderedJson::object();
    json["type"] = type;
    for (auto& [name, value] : members.items()) json[name] = std::move(value);
    return send(type, toText(json));
  }

  const std::string id_;
};

}  // namespace

void handleMessages(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter) {
  ClientCharge memory(request.client);
  ChatRequest chat = parseMessagesRequest(request.body, meter, memory);
  answerChat(context, request, exchange, meter, chat, [&](AnswerSetup setup) {
    return std::make_shared<MessageWriter>(std::move(setup), errorFormFor(request.path, request.id));
  });
}

void handleCountTokens(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                       WorkMeter& meter) {
  ClientCharge memory(request.client);
  ChatRequest chat = parseCountTokensRequest(request.body, meter, memory);
  const ChatPrompt prompt = renderChatPrompt(context, request, chat, meter);
  const size_t tokens = encodeWhole(*prompt.model, prompt.text, chat.add_special_tokens, meter, memory).size();
  exchange->respond({.body = toText(OrderedJson{{"input_tokens", tokens}})});
}

}  // namespace chorus::server
