// Reads how long a request may wait before it begins to run.
#pragma once

#include <chrono>
#include <optional>

#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

inline constexpr const char* kQueueTimeoutHeader = "x-request-timeout-ms";

// The server's queue timeout, or the request's own in the header x-request-timeout-ms if that is shorter; from the
// moment the request is completely received. Throws ApiError (400) unless the header is a whole number from 1 to 10^9.
std::optional<std::chrono::milliseconds> queueTimeoutOf(const ApiContext& context, const HttpRequest& request);

}  // namespace chorus::server
