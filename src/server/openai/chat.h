// POST /v1/chat/completions.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/route_description.h"

namespace chorus::server {

// Same contract as handleCompletion.
void handleChat(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter);

inline constexpr RouteDescription kChatRoute{.summary = "An answer to a conversation",
                                             .request = FieldOwner::kChat,
                                             .answer = "ChatCompletion",
                                             .event = "ChatCompletionChunk"};

}  // namespace chorus::server
