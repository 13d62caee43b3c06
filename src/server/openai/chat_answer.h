// Answers a conversation. Every route whose request can be translated to one uses this.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/answer_writer.h"
#include "server/openai/openai_types.h"

namespace chorus::server {

struct ChatPrompt {
  std::shared_ptr<const ServedModel> model;
  std::string text;
};
// Chooses the model, frees the request's body and renders the conversation. Changes chat.messages if the template does
// not know the role developer (withoutDeveloper). Throws ApiError, and TextPending before the body is freed. Charges
// the meter and throws what it throws.
ChatPrompt renderChatPrompt(const ApiContext& context, HttpRequest& request, ChatRequest& chat, WorkMeter& meter);

// Makes the writer of the answer.
using MakeAnswerWriter = std::function<std::shared_ptr<AnswerWriter>(AnswerSetup setup)>;

// The rest of a RequestWork (preparation.h) after the body was parsed to `chat`: renders, tokenizes and starts to
// answer. Calls make_writer() while `chat` is whole, and moves the options out of it then.
void answerChat(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter, ChatRequest& chat, const MakeAnswerWriter& make_writer);

}  // namespace chorus::server
