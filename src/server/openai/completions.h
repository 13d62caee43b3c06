// POST /v1/completions.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// A RequestWork. Frees the request's body once it is parsed; answers through the exchange, later on other threads.
void handleCompletion(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter);

}  // namespace chorus::server
