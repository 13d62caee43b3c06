// POST /v1/completions.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/route_description.h"

namespace chorus::server {

// A RequestWork (preparation.h). Frees the request's body once it is parsed. Answers through the exchange, later and on
// other threads.
void handleCompletion(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter);

inline constexpr RouteDescription kCompletionRoute{.summary = "A continuation of one or several prompts",
                                                   .request = FieldOwner::kCompletion,
                                                   .answer = "Completion",
                                                   .event = "CompletionChunk"};

}  // namespace chorus::server
