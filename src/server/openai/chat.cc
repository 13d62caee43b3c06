#include "server/openai/chat.h"

#include <utility>

#include "server/openai/generation_writer.h"
#include "server/openai/log_probs.h"
#include "server/openai/model_choice.h"
#include "server/openai/openai_types.h"

namespace chorus::server {
namespace {

class ChatWriter : public GenerationWriter {
 public:
  explicit ChatWriter(Setup setup)
      : GenerationWriter(std::move(setup), {"chatcmpl-", "chat.completion", "chat.completion.chunk"}) {}

 protected:
  OrderedJson firstChoice(int32_t index) override {
    return chunkChoice(index, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr, nullptr);
  }

  OrderedJson deltaChoice(const GenerationDelta& delta) override {
    OrderedJson content = OrderedJson::object();
    if (!delta.text.empty()) content["content"] = delta.text;
    return chunkChoice(delta.choice, std::move(content), chatLogProbs(*model().text, options(), delta.logProbs),
                       delta.finishReason ? OrderedJson(*delta.finishReason) : OrderedJson(), delta.stopReason);
  }

  OrderedJson wholeChoice(const GenerationDelta& everything) override {
    OrderedJson json;
    json["index"] = everything.choice;
    json["message"] = {{"role", "assistant"}, {"content", everything.text}, {"refusal", nullptr}};
    json["logprobs"] = chatLogProbs(*model().text, options(), everything.logProbs);
    json["finish_reason"] = everything.finishReason.value_or("stop");
    json["stop_reason"] = everything.stopReason;
    return json;
  }

 private:
  static OrderedJson chunkChoice(int32_t index, OrderedJson delta, OrderedJson logProbs, OrderedJson finishReason,
                                 OrderedJson stopReason) {
    const bool last = !finishReason.is_null();
    OrderedJson json;
    json["index"] = index;
    json["delta"] = std::move(delta);
    json["logprobs"] = std::move(logProbs);
    json["finish_reason"] = std::move(finishReason);
    if (last) json["stop_reason"] = std::move(stopReason);
    return json;
  }
};

std::string renderPrompt(const ServedModel& model, const ChatRequest& request) {
  if (!model.text->hasChatTemplate() && !request.rendering.chatTemplate) {
    throw ApiError::invalid("This model has no chat template; use /v1/completions.", "messages", "no_chat_template");
  }
  try {
    return model.text->renderChat(request.messages, request.tools, request.rendering);
  } catch (const std::exception&) {
    ApiError error = currentApiError();
    if (error.status() >= 500) throw std::move(error);
    throw ApiError::invalid(error.message(), "messages", "invalid_messages");
  }
}

}  // namespace

void handleChat(const ApiContext& context, const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
  ChatRequest parsed = parseChatRequest(request.body);
  const auto model = chooseModel(context.models, parsed.options.model, parsed.options.adapters);

  Generation::Job job{.model = model, .options = parsed.options, .defaultMaxTokens = 0, .promptField = "messages"};
  // The template usually writes the special tokens itself.
  job.prompts.push_back(model->text->encode(renderPrompt(*model, parsed), parsed.addSpecialTokens));
  if (job.prompts.front().empty()) {
    throw ApiError::invalid("Invalid value for 'messages': the prompt has no tokens.", "messages", "invalid_value");
  }
  auto writer = std::make_shared<ChatWriter>(
      GenerationWriter::Setup{exchange, model, parsed.options, static_cast<size_t>(parsed.options.choices)});
  startGeneration(context, std::move(job), exchange, std::move(writer));
}

}  // namespace chorus::server
