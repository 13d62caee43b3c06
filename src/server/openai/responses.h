// POST /v1/responses: OpenAI's Responses API without state, as a translation to a chat.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/route_description.h"

namespace chorus::server {

// A RequestWork (preparation.h).
void handleResponse(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter);

inline constexpr RouteDescription kResponseRoute{.summary = "An answer to a text or a conversation (Responses API)",
                                                 .request = FieldOwner::kResponse,
                                                 .answer = "Response",
                                                 .event = "ResponseEvent"};

}  // namespace chorus::server
