#include "server/routes/route_table.h"

#include <algorithm>
#include <memory>
#include <ranges>
#include <string>
#include <utility>

#include "server/admin/adapter_routes.h"
#include "server/admin/lifecycle_routes.h"
#include "server/anthropic/messages.h"
#include "server/errors.h"
#include "server/metrics/live_state.h"
#include "server/metrics/server_metrics.h"
#include "server/openai/chat.h"
#include "server/openai/completions.h"
#include "server/openai/models.h"
#include "server/openai/responses.h"
#include "server/openai/service_info.h"
#include "server/openai/tokenize.h"
#include "server/page/page.h"

namespace chorus::server {
namespace {

HttpResponse health(std::string_view message) {
  return {.body = toText(OrderedJson{{"object", "health.response"}, {"message", message}})};
}

HttpResponse live(const ApiContext*, const HttpRequest&, std::string_view) { return health("Service is live."); }
HttpResponse ready(const ApiContext*, const HttpRequest&, std::string_view) { return health("Service is ready."); }
HttpResponse version(const ApiContext*, const HttpRequest&, std::string_view) { return describeVersion(); }
HttpResponse plainVersion(const ApiContext*, const HttpRequest&, std::string_view) { return describePlainVersion(); }
HttpResponse license(const ApiContext*, const HttpRequest&, std::string_view) { return describeLicense(); }
HttpResponse model(const ApiContext* context, const HttpRequest& request, std::string_view name) {
  return describeModel({context->models, request.key}, context->engine.maxSeqLen(), name);
}
HttpResponse openApi(const ApiContext*, const HttpRequest&, std::string_view) {
  static const std::string text = toText(openApiDocument(describedRoutes()));
  return {.body = text};
}

HttpResponse page(const ApiContext*, const HttpRequest&, std::string_view) { return pageResponse(); }

using ClientPtr = std::shared_ptr<Client>;
HttpResponse metadata(const ApiContext&, const ModelView& models, const ClientPtr& client) {
  return describeMetadata(models, client);
}
HttpResponse manifest(const ApiContext&, const ModelView& models, const ClientPtr& client) {
  return describeManifest(models, client);
}
HttpResponse modelList(const ApiContext& context, const ModelView& models, const ClientPtr& client) {
  return listModels(models, context.engine.maxSeqLen(), client);
}
HttpResponse batch(const ApiContext& context, const ModelView& models, const ClientPtr& client) {
  HttpResponse response = describeBatch(context, models, client.get());
  ClientCharge memory(client);
  addCharge(memory, response.body.size());
  response.memory = std::move(memory);
  return response;
}

// The work of an answer whose length grows with the number of models. It is made in the intake, because with many
// adapters it would hold up all connections of an I/O thread. answer: charges the memory of the answer to the client.
template <HttpResponse (*answer)(const ApiContext&, const ModelView&, const ClientPtr&)>
void ofAllModels(const ApiContext& context, HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange,
                 WorkMeter& meter) {
  const ModelView models{context.models, request.key};
  chargeList(meter, context.models);
  exchange->respond(answer(context, models, request.client));
}

constexpr std::string_view kRead = "GET, HEAD";
constexpr RouteDescription kMetricsRoute = {.summary = "Metrics for Prometheus", .answer_type = kMetricsType};
constexpr RouteDescription kReadyRoute = {.summary = "Whether requests are served", .answer = "Health"};
constexpr Route kRoutes[] = {
    {"/",
     Access::kOpen,
     false,
     kRead,
     page,
     nullptr,
     {.summary = "A page that asks several adapters at once", .answer_type = "text/html"}},
    {"/v1/health/live",
     Access::kOpen,
     false,
     kRead,
     live,
     nullptr,
     {.summary = "Whether the process answers", .answer = "Health"}},
    {"/v1/health/ready", Access::kOpen, true, kRead, ready, nullptr, kReadyRoute},
    // Paths at which probes of other servers and of SageMaker ask the same.
    {"/health", Access::kOpen, true, kRead, ready, nullptr, kReadyRoute},
    {"/ping", Access::kOpen, true, kRead, ready, nullptr, kReadyRoute},
    {"/version", Access::kInference, false, kRead, plainVersion, nullptr, kPlainVersionRoute},
    {"/v1/version", Access::kInference, false, kRead, version, nullptr, kVersionRoute},
    {"/v1/license", Access::kInference, false, kRead, license, nullptr, kLicenseRoute},
    {"/v1/metadata", Access::kInference, true, kRead, nullptr, ofAllModels<metadata>, kMetadataRoute, Lane::kLists},
    {"/v1/manifest", Access::kInference, true, kRead, nullptr, ofAllModels<manifest>, kManifestRoute, Lane::kLists},
    {"/v1/models",
     Access::kInference,
     true,
     kRead,
     nullptr,
     ofAllModels<modelList>,
     {.summary = "The models: base and adapters", .answer = "ModelList"},
     Lane::kLists},
    {"/v1/models/", Access::kInference, true, kRead, model, nullptr, {.summary = "One model", .answer = "Model"}},
    {"/v1/completions", Access::kGenerate, true, "POST", nullptr, handleCompletion, kCompletionRoute},
    {"/v1/chat/completions", Access::kGenerate, true, "POST", nullptr, handleChat, kChatRoute},
    {"/v1/responses", Access::kGenerate, true, "POST", nullptr, handleResponse, kResponseRoute},
    {"/v1/messages", Access::kGenerate, true, "POST", nullptr, handleMessages, kMessagesRoute},
    {"/v1/messages/count_tokens", Access::kInference, true, "POST", nullptr, handleCountTokens, kCountTokensRoute},
    {"/tokenize", Access::kInference, true, "POST", nullptr, handleTokenize, kTokenizeRoute},
    {"/v1/tokenize", Access::kInference, true, "POST", nullptr, handleTokenize, kTokenizeRoute},
    {"/detokenize", Access::kInference, true, "POST", nullptr, handleDetokenize, kDetokenizeRoute},
    {"/v1/detokenize", Access::kInference, true, "POST", nullptr, handleDetokenize, kDetokenizeRoute},
    {"/openapi.json", Access::kInference, false, kRead, openApi, nullptr, kOpenApiRoute},
    {"/v1/load_lora_adapter",
     Access::kAdmin,
     true,
     "POST",
     nullptr,
     handleLoadLora,
     {.summary = "Loads or replaces an adapter", .answer_type = "text/plain", .body = "LoadLoraFields"},
     Lane::kAdapters},
    {"/v1/unload_lora_adapter",
     Access::kAdmin,
     true,
     "POST",
     nullptr,
     handleUnloadLora,
     {.summary = "Unloads an adapter", .answer_type = "text/plain", .body = "UnloadLoraFields"},
     Lane::kAdapters},
    {"/adapters",
     Access::kAdmin,
     true,
     "GET, HEAD, POST",
     nullptr,
     handleAdapters,
     {.summary = "Lists adapters, or loads one",
      .answer = "AdapterNotice",
      .method_answers = {{{"get", "AdapterNames"}}},
      .body = "RegisterAdapterFields"},
     Lane::kAdapters},
    {"/adapters/",
     Access::kAdmin,
     true,
     "DELETE",
     nullptr,
     handleAdapter,
     {.summary = "Unloads an adapter", .answer = "AdapterNotice"},
     Lane::kAdapters},
    {"/v1/admin/adapters",
     Access::kAdmin,
     true,
     kRead,
     nullptr,
     handleAdapterStates,
     {.summary = "Where each adapter is", .answer = "AdapterList"},
     Lane::kLists},
    {"/v1/admin/validate",
     Access::kAdmin,
     true,
     "POST",
     nullptr,
     handleAdapterValidation,
     {.summary = "Checks an adapter without serving it", .answer = "AdapterReport", .takes_files = true},
     Lane::kAdapters},
    {"/v1/admin/adapters/{name}/pin",
     Access::kAdmin,
     true,
     "POST, DELETE",
     nullptr,
     handleAdapterPin,
     {.summary = "Pins an adapter in the host cache, or unpins it", .answer = "AdapterPin"}},
    {"/v1/admin/adapters/{name}/prefetch",
     Access::kAdmin,
     true,
     "POST",
     nullptr,
     handleAdapterPrefetch,
     {.summary = "Loads an adapter into the host cache",
      .answer = "AdapterLoad",
      .answers_early = true,
      .body = "PrefetchFields",
      .needs_body = false}},
    {"/v1/admin/adapters/{name}/rollback",
     Access::kAdmin,
     true,
     "POST",
     nullptr,
     handleAdapterRollback,
     {.summary = "Serves an earlier content of an adapter again",
      .answer = "AdapterChange",
      .body = "RollbackFields",
      .needs_body = false},
     Lane::kAdapters},
    {"/v1/admin/adapters/",
     Access::kAdmin,
     true,
     "GET, HEAD, PUT, DELETE",
     nullptr,
     handleAdminAdapter,
     {.summary = "One adapter: its state; serves or replaces it by a path or an upload; removes it",
      .answer = "AdapterChange",
      .method_answers = {{{"get", "Adapter"}, {"delete", "AdapterRemoval"}}},
      .takes_files = true},
     Lane::kAdapters},
    {"/metrics", Access::kAdmin, false, kRead, nullptr, nullptr, kMetricsRoute},
    {"/v1/metrics", Access::kAdmin, false, kRead, nullptr, nullptr, kMetricsRoute},
    {"/v1/batch",
     Access::kInference,
     true,
     kRead,
     nullptr,
     ofAllModels<batch>,
     {.summary = "The step that runs and the caches"},
     Lane::kLists},
};

// Whether a request's path is one of the route's.
bool isOf(const Route& route, std::string_view path) {
  constexpr std::string_view kName = "{name}";
  if (route.path.size() > 1 && route.path.ends_with('/')) {
    return path.starts_with(route.path) && path.size() > route.path.size();
  }
  const size_t name = route.path.find(kName);
  if (name == std::string_view::npos) return path == route.path;
  const std::string_view before = route.path.substr(0, name), after = route.path.substr(name + kName.size());
  if (!path.starts_with(before) || !path.ends_with(after) || path.size() <= before.size() + after.size()) return false;
  return path.substr(before.size(), path.size() - before.size() - after.size()).find('/') == std::string_view::npos;
}

}  // namespace

const Route* findRoute(std::string_view path) {
  const auto* const found = std::ranges::find_if(kRoutes, [&](const Route& route) { return isOf(route, path); });
  return found == std::end(kRoutes) ? nullptr : found;
}

bool allows(const Route& route, std::string_view method) {
  return std::ranges::any_of(std::views::split(route.allow, std::string_view(", ")),
                             [&](const auto& one) { return std::string_view(one.begin(), one.end()) == method; });
}

bool isPage(const Route& route) { return route.answer == page; }

bool isReadiness(const Route& route) { return route.answer == ready; }

std::vector<DescribedRoute> describedRoutes() {
  std::vector<DescribedRoute> routes;
  for (const Route& route : kRoutes) routes.push_back({route.path, route.allow, route.about});
  return routes;
}

}  // namespace chorus::server
