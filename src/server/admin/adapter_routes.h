// Routes of other servers that list, load and unload adapters while the server runs (--enable_admin): vLLM's and Amazon
// SageMaker's. lifecycle_routes.h has Chorus's own. All of them change the same AdapterDirectory.
#pragma once

#include <memory>

#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Each is a RequestWork (preparation.h), and throws ApiError 403 without --enable_admin.

// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's fields, statuses and messages.
void handleLoadLora(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter);
void handleUnloadLora(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter);
// GET and POST /adapters, and DELETE /adapters/{name}, as SageMaker's containers for large models have them. With
// "preload" or "pin", POST answers when the adapter is loaded.
void handleAdapters(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                    WorkMeter& meter);
void handleAdapter(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                   WorkMeter& meter);

}  // namespace chorus::server
