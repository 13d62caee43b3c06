#include "server/openai/chat.h"

#include <utility>

#include "server/openai/chat_answer.h"
#include "server/openai/generation_writer.h"
#include "server/openai/log_probs.h"
#include "server/openai/openai_types.h"

namespace chorus::server {
namespace {

class ChatWriter : public GenerationWriter {
 public:
  explicit ChatWriter(AnswerSetup setup)
      : GenerationWriter(std::move(setup), {"chatcmpl-", "chat.completion", "chat.completion.chunk"}) {}

 protected:
  bool hasFirstChunks() const override { return true; }

  OrderedJson echoChoice(int32_t index, std::string_view) override {
    return chunkChoice(index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }

  OrderedJson deltaChoice(const GenerationDelta& delta) override {
    OrderedJson content = OrderedJson::object();
    if (!delta.text.empty()) content["content"] = delta.text;
    return chunkChoice(delta.choice, std::move(content),
                       delta.finish_reason ? OrderedJson(*delta.finish_reason) : OrderedJson(), delta.stop_reason);
  }

  void appendLogProbs(const GenerationDelta& delta, ArraysText& out) override {
    appendChatLogProbs(*model().text, options(), delta.log_probs, out);
  }

  OrderedJson wholeChoice(const GenerationDelta& everything) override {
    OrderedJson json = OrderedJson::object();
    json["index"] = everything.choice;
    json["message"] = {{"role", "assistant"}, {"content", everything.text}, {"refusal", nullptr}};
    json["logprobs"] = nullptr;
    json["finish_reason"] = everything.finish_reason.value_or("stop");
    json["stop_reason"] = everything.stop_reason;
    return json;
  }

 private:
  static OrderedJson chunkChoice(int32_t index, OrderedJson delta, OrderedJson finish_reason, OrderedJson stop_reason) {
    const bool last = !finish_reason.is_null();
    OrderedJson json = OrderedJson::object();
    json["index"] = index;
    json["delta"] = std::move(delta);
    json["logprobs"] = nullptr;
    json["finish_reason"] = std::move(finish_reason);
    if (last) json["stop_reason"] = std::move(stop_reason);
    return json;
  }
};

}  // namespace

void handleChat(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter) {
  ClientCharge memory(request.client);
  ChatRequest chat = parseChatRequest(request.body, meter, memory, context.max_choices);
  answerChat(context, request, exchange, meter, chat,
             [](AnswerSetup setup) { return std::make_shared<ChatWriter>(std::move(setup)); });
}

}  // namespace chorus::server
