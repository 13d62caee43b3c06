// POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API, as a translation to a chat.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/route_description.h"

namespace chorus::server {

// Both functions are RequestWorks (preparation.h).
void handleMessages(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter);
void handleCountTokens(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                       WorkMeter& meter);

inline constexpr RouteDescription kMessagesRoute{.summary = "An answer to a conversation (Anthropic's Messages API)",
                                                 .request = FieldOwner::kAnthropic,
                                                 .answer = "AnthropicAnswer",
                                                 .event = "AnthropicEvent"};
inline constexpr RouteDescription kCountTokensRoute{
    .summary = "The number of tokens of a conversation", .request = FieldOwner::kCountTokens, .answer = "TokenCount"};

}  // namespace chorus::server
