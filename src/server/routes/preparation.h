// A request on its way from its route to its answer: its work runs in an intake.
#pragma once

#include <memory>

#include "base/work_meter.h"
#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/work/intake.h"

namespace chorus::server {

// Prepares a request on an intake thread and starts to answer it. Throws ApiError or TextPending only if nothing was
// sent yet.
using RequestWork = void (*)(const ApiContext& context, HttpRequest& request,
                             const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter);

// Submits the work to the intake, which is one of the context's, and returns at once. What the work throws is the
// answer. If the tokenizer of the request's adapter is not read yet, the request waits for it outside the intake and
// then passes once more. If the client disconnects, the work is cancelled. Throws ApiError when too many requests wait.
void prepare(std::shared_ptr<const ApiContext> context, Intake& intake, RequestWork work, HttpRequest request,
             const std::shared_ptr<HttpExchange>& exchange);

}  // namespace chorus::server
