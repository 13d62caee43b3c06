#include "server/openai/chat_answer.h"

#include <fmt/format.h>

#include <utility>

#include "base/free_text.h"
#include "server/errors.h"
#include "server/openai/conversation.h"
#include "server/openai/model_choice.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/queue_timeout.h"

namespace chorus::server {
namespace {

// A template is a program, so a request may contain one only if the operator trusts the clients.
void checkTemplate(const ApiContext& context, const ServedModel& model, const ChatRendering& rendering) {
  if (!rendering.chat_template || context.trust_request_templates) return;
  if (model.text->hasChatTemplate(*rendering.chat_template)) return;
  throw ApiError::forbidden(
      "'chat_template' must be the name of one of the model's templates. Template text is accepted only if the server "
      "is started with --trust_request_templates.",
      "chat_template", "request_template_not_allowed");
}

std::string renderPrompt(const ServedModel& model, ChatRequest& request, WorkMeter& meter) {
  if (!model.text->hasChatTemplate() && !request.rendering.chat_template) {
    throw ApiError::invalid("This model has no chat template; use /v1/completions.", request.messages_field,
                            "no_chat_template");
  }
  if (!model.text->knowsDeveloper(request.rendering)) request.messages = withoutDeveloper(std::move(request.messages));
  try {
    return model.text->renderChat(request.messages, request.rendering, meter);
  } catch (const WorkStopped&) {
    throw;
  } catch (const ApiError&) {
    throw;
  } catch (const std::exception&) {
    ApiError error = currentApiError();
    if (error.status() >= 500) throw std::move(error);
    throw ApiError::invalid(error.message(), request.messages_field, "invalid_messages");
  }
}

}  // namespace

ChatPrompt renderChatPrompt(const ApiContext& context, HttpRequest& request, ChatRequest& chat, WorkMeter& meter) {
  ChatPrompt prompt;
  prompt.model = chooseModel({context.models, request.key}, chat.options.model, chat.options.adapters);
  freeText(request.body);  // not before: after TextPending the body is parsed again
  request.memory.release();
  checkTemplate(context, *prompt.model, chat.rendering);
  prompt.text = renderPrompt(*prompt.model, chat, meter);
  return prompt;
}

void answerChat(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter, ChatRequest& chat, const MakeAnswerWriter& make_writer) {
  const ChatPrompt prompt = renderChatPrompt(context, request, chat, meter);
  Generation::Job job{.model = prompt.model,
                      .default_max_tokens = 0,
                      .prompt_field = chat.messages_field,
                      .client = request.client,
                      .received = request.received,
                      .usage = std::move(request.usage),
                      .queue_timeout = queueTimeoutOf(context, request),
                      .share = fairShareOf(context.fair_by, request, *prompt.model),
                      .continues_prompt = chat.rendering.continue_final_message};
  // The template usually writes the special tokens itself.
  job.prompts.push_back(
      encodePrompt(context, *prompt.model, prompt.text, chat.add_special_tokens, meter, job.prompt_field));
  if (job.prompts.front().empty()) {
    throw ApiError::invalid(fmt::format("Invalid value for '{}': the prompt has no tokens.", chat.messages_field),
                            chat.messages_field, "invalid_value");
  }
  auto writer = make_writer(AnswerSetup{exchange, prompt.model, chat.options.ofAnswer(),
                                        static_cast<size_t>(chat.options.choices), ClientCharge(request.client)});
  job.options = std::move(chat.options);
  startGeneration(context, std::move(job), exchange, std::move(writer), meter);
}

}  // namespace chorus::server
