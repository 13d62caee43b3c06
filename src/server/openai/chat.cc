#include "server/openai/chat.h"

#include <utility>

#include "server/openai/generation_writer.h"
#include "server/openai/log_probs.h"
#include "server/openai/model_choice.h"
#include "server/openai/openai_types.h"
#include "server/openai/prompt_tokens.h"

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
    return chunkChoice(delta.choice, std::move(content), logProbsOf(delta),
                       delta.finish_reason ? OrderedJson(*delta.finish_reason) : OrderedJson(), delta.stop_reason);
  }

  OrderedJson logProbsOf(const GenerationDelta& delta) override {
    return chatLogProbs(*model().text, options(), delta.log_probs);
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
  static OrderedJson chunkChoice(int32_t index, OrderedJson delta, OrderedJson log_probs, OrderedJson finish_reason,
                                 OrderedJson stop_reason) {
    const bool last = !finish_reason.is_null();
    OrderedJson json = OrderedJson::object();
    json["index"] = index;
    json["delta"] = std::move(delta);
    json["logprobs"] = std::move(log_probs);
    json["finish_reason"] = std::move(finish_reason);
    if (last) json["stop_reason"] = std::move(stop_reason);
    return json;
  }
};

// A template is a program, so a request may contain one only if the operator trusts the clients.
void checkTemplate(const ApiContext& context, const ServedModel& model, const ChatRendering& rendering) {
  if (!rendering.chat_template || context.trust_request_templates) return;
  if (model.text->hasChatTemplate(*rendering.chat_template)) return;
  throw ApiError::forbidden(
      "'chat_template' must be the name of one of the model's templates. Template text is accepted only if the server "
      "is started with --trust_request_templates.",
      "chat_template", "request_template_not_allowed");
}

std::string renderPrompt(const ServedModel& model, const ChatRequest& request, WorkMeter& meter) {
  if (!model.text->hasChatTemplate() && !request.rendering.chat_template) {
    throw ApiError::invalid("This model has no chat template; use /v1/completions.", "messages", "no_chat_template");
  }
  try {
    return model.text->renderChat(request.messages, request.rendering, meter);
  } catch (const WorkStopped&) {
    throw;
  } catch (const std::exception&) {
    ApiError error = currentApiError();
    if (error.status() >= 500) throw std::move(error);
    throw ApiError::invalid(error.message(), "messages", "invalid_messages");
  }
}

}  // namespace

void handleChat(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter) {
  ClientCharge memory(request.client);
  ChatRequest parsed = parseChatRequest(request.body, meter, memory, context.max_choices);
  const auto model = chooseModel(context.models, parsed.options.model, parsed.options.adapters);
  request.body = std::string();  // not before: after TextPending the body is parsed again
  request.memory.release();
  checkTemplate(context, *model, parsed.rendering);

  Generation::Job job{.model = model,
                      .options = parsed.options,
                      .default_max_tokens = 0,
                      .prompt_field = "messages",
                      .client = request.client,
                      .received = request.received};
  // The template usually writes the special tokens itself.
  job.prompts.push_back(encodePrompt(context, *model, renderPrompt(*model, parsed, meter), parsed.add_special_tokens,
                                     meter, job.prompt_field));
  if (job.prompts.front().empty()) {
    throw ApiError::invalid("Invalid value for 'messages': the prompt has no tokens.", "messages", "invalid_value");
  }
  auto writer = std::make_shared<ChatWriter>(GenerationWriter::Setup{
      exchange, model, parsed.options, static_cast<size_t>(parsed.options.choices), ClientCharge(request.client)});
  startGeneration(context, std::move(job), exchange, std::move(writer), meter);
}

}  // namespace chorus::server
