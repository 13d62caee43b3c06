// Routes beneath /v1/admin that change and inspect adapters while the server runs (--enable_admin).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/work_meter.h"
#include "server/errors.h"
#include "server/http/http.h"
#include "server/model/api_context.h"

namespace chorus::server {

// Each is a RequestWork (preparation.h), and throws ApiError 403 without --enable_admin.

// GET /v1/admin/adapters: every served adapter, where its weights are, their size, users, pin, content hash and earlier
// contents. Waits for a step per some hundreds of adapters (Executor::getAdapterStates).
void handleAdapterStates(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                         WorkMeter& meter);
// /v1/admin/adapters/{name}. GET: the entry of this adapter. PUT: serves the adapter of a path, {"path": "..."}, or an
// uploaded one (upload_body.h) under the name, in place of what it served before, and loads it. DELETE: unloads it.
void handleAdminAdapter(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                        WorkMeter& meter);
// POST and DELETE /v1/admin/adapters/{name}/pin: pins the adapter in the host cache, and unpins it. POST answers when
// the adapter is loaded.
void handleAdapterPin(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                      WorkMeter& meter);
// POST /v1/admin/adapters/{name}/prefetch: loads the adapter into the host cache. Answers when it is there; at once
// with status 202 if the body is {"wait": false}.
void handleAdapterPrefetch(const ApiContext& context, HttpRequest& request,
                           const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter);
// POST /v1/admin/adapters/{name}/rollback: serves the content again that the name had before, or an earlier one,
// {"content_hash": "..."}.
void handleAdapterRollback(const ApiContext& context, HttpRequest& request,
                           const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter);
// POST /v1/admin/validate: checks the adapter of a path, {"path": "..."}, or an uploaded one, without serving it.
void handleAdapterValidation(const ApiContext& context, HttpRequest& request,
                             const std::shared_ptr<HttpExchange>& exchange, WorkMeter& meter);

// Loads an adapter into the host cache, and pins it if asked. Answers the exchange with `answer`, or with the error. If
// the adapter is replaced in the meantime, the adapter that then has its name is loaded. field: that of the request
// which names the adapter; nullopt if the path does.
void loadThenAnswer(const ApiContext& context, const HttpRequest& request,
                    const std::shared_ptr<HttpExchange>& exchange, const ServedModel& adapter, bool pin,
                    std::optional<std::string> field, HttpResponse answer);

// The answer to a request that was stopped while it read an adapter. Must be called in the handler that caught `e`.
ApiError readingStopped(const WorkStopped& e);

// The answer to a request for a name for which there is no room.
ApiError tooManyAdapters(const std::string& name, const TooManyAdapters& e);

// The adapter directory. Throws ApiError 403 without --enable_admin.
AdapterDirectory& adaptersOf(const ApiContext& context);

}  // namespace chorus::server
