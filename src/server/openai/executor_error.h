// Errors of the executor as clients see them.
#pragma once

#include "chorus/response.h"
#include "server/errors.h"
#include "server/model/model_catalog.h"

namespace chorus::server {

// Translates the error of a response to a request for `served`; response.hasError() must be true. Adapters are named by
// their names instead of their ids, and paths of the server are shortened (clientMessage()).
ApiError fromExecutor(const executor::Response& response, const ServedModel& served);

}  // namespace chorus::server
