// POST /v1/completions.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// On a worker thread. Answers through the exchange, later on other threads; throws ApiError while nothing was sent.
void handleCompletion(const ApiContext& context, const HttpRequest& request,
                      const std::shared_ptr<HttpExchange>& exchange);

}  // namespace chorus::server
