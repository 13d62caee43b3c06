// POST /v1/chat/completions.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Same contract as handleCompletion.
void handleChat(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                WorkMeter& meter);

}  // namespace chorus::server
