#include "server/openai/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "server/admin/adapter_routes.h"
#include "server/admin/lifecycle_routes.h"
#include "server/admin/upload_body.h"
#include "server/anthropic/messages.h"
#include "server/errors.h"
#include "server/metrics/live_state.h"
#include "server/metrics/recorded_exchange.h"
#include "server/openai/chat.h"
#include "server/openai/completions.h"
#include "server/openai/generation_writer.h"
#include "server/openai/model_choice.h"
#include "server/openai/models.h"
#include "server/openai/responses.h"
#include "server/openai/service_info.h"
#include "server/openai/tokenize.h"
#include "server/page/page.h"
#include "server/work/preparation_memory.h"

namespace chorus::server {
namespace {

HttpResponse health(std::string_view message) {
  return {.body = toText(OrderedJson{{"object", "health.response"}, {"message", message}})};
}

ApiError unsupportedType(std::string message) {
  return ApiError(415, std::move(message), "invalid_request_error", std::nullopt, "unsupported_media_type");
}

// A body needs a JSON content type. A web page of another origin can send a body without a type, or with a form's type,
// without a CORS preflight.
// takes_files: whether the route also takes an uploaded adapter.
void checkContentType(const HttpRequest& request, bool takes_files) {
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    throw unsupportedType("Compressed request bodies are not supported.");
  }
  const std::string_view stated = request.header("content-type");
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (request.body.empty() && (reads || stated.empty())) return;
  std::string type(stated.substr(0, stated.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool plain = type.find_first_of(", \t") == std::string::npos;
  if (takes_files && isUpload(stated)) return;
  if (type == "application/json" || (plain && type.starts_with("application/") && type.ends_with("+json"))) return;
  throw unsupportedType("Content-Type must be application/json.");
}

// A request on its way through the intake. If its adapter's tokenizer is not read yet, it waits outside the intake and
// then passes once more.
class Preparation : public std::enable_shared_from_this<Preparation> {
 public:
  // intake: one of the context's.
  Preparation(std::shared_ptr<const ApiContext> context, Intake& intake, RequestWork work, HttpRequest request,
              std::shared_ptr<HttpExchange> exchange)
      : context_(std::move(context)),
        intake_(intake),
        work_(work),
        request_(std::move(request)),
        exchange_(std::move(exchange)) {}

  // Throws ApiError when too many requests wait.
  void submit() {
    Intake::Job job{.client = request_.client ? request_.client->id() : 0,
                    .bytes = request_.body.size(),
                    .work = [self = shared_from_this()](WorkMeter& meter) { self->run(meter); }};
    if (context_->request_timeout) job.deadline = request_.received + *context_->request_timeout;
    switch (intake_.submit(ticket_, std::move(job))) {
      case FairQueue::Answer::kAdded:
        return;
      case FairQueue::Answer::kClientFull:
        throw ApiError::overloaded("Too many requests of this client are waiting; try again soon.");
      case FairQueue::Answer::kFull:
        throw ApiError::unavailable("Too many requests wait; try again soon.");
    }
  }

  // The client has disconnected.
  void abandon() {
    ticket_->cancel();
    if (const TextWaits::Id wait = wait_; wait != 0) context_->models.cancelWait(wait);
  }

 private:
  void run(WorkMeter& meter) {
    try {
      if (meter.cancelled()) throw ApiError::unavailable("The server is shutting down.");
      const PreparationMemory memory(meter, request_.client);
      try {
        work_(*context_, request_, exchange_, meter);
      } catch (const TextPending& pending) {
        waitFor(pending.adapter);
      }
    } catch (...) {
      refuse();
    }
  }

  void waitFor(const std::string& adapter) {
    if (std::exchange(waited_, true)) {
      throw ApiError::unavailable(
          fmt::format("The tokenizer of the adapter `{}` is still being read; try again soon.", adapter));
    }
    const auto wait = context_->models.waitForText(adapter, [self = shared_from_this()] { self->submitAgain(); });
    if (!wait) return submitAgain();
    wait_ = *wait;
    if (ticket_->cancelled()) context_->models.cancelWait(*wait);
  }

  void submitAgain() noexcept {
    try {
      submit();
    } catch (...) {
      refuse();
    }
  }

  // Answers with the exception that is being handled.
  void refuse() noexcept {
    try {
      const ApiError error = currentApiError();
      log::debug("{} answered {}: {}", request_.id, error.status(), error.message());
      // Before the answer, because the client may send its next request as soon as it has it.
      if (request_.usage) request_.usage->end();
      exchange_->respond(error.response(errorFormFor(request_.path, request_.id)));
    } catch (...) {  // out of memory: the exchange answers with status 500 when it is destroyed
      return;
    }
  }

  const std::shared_ptr<const ApiContext> context_;
  Intake& intake_;
  const RequestWork work_;
  HttpRequest request_;
  const std::shared_ptr<HttpExchange> exchange_;
  const std::shared_ptr<Intake::Ticket> ticket_ = std::make_shared<Intake::Ticket>();
  bool waited_ = false;
  std::atomic<TextWaits::Id> wait_ = 0;  // 0: none began
};

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

// The intake in which a route's methods other than GET and HEAD run.
enum class Lane {
  kRequests,  // ApiContext::intake
  kAdapters   // ApiContext::adapter_intake, because they read an adapter's files or wait for a thread that does
};

struct Route {
  // One that ends in '/' is followed by a name, except the root. Elsewhere a name is written as "{name}".
  std::string_view path;
  Access access;
  bool needs_model;        // refused with 503 while the model loads and while the server drains
  std::string_view allow;  // the methods, as in the header Allow
  // answer: the answer to GET and HEAD; context is null unless needs_model, name is what follows `path`. work: prepares
  // the other methods in the intake, and GET and HEAD if there is no `answer`. Neither: the metrics, which Routes
  // itself answers.
  HttpResponse (*answer)(const ApiContext* context, const HttpRequest& request, std::string_view name);
  RequestWork work;
  RouteDescription about;  // for /openapi.json
  Lane lane = Lane::kRequests;
};

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
    {"/v1/metadata", Access::kInference, true, kRead, nullptr, ofAllModels<metadata>, kMetadataRoute},
    {"/v1/manifest", Access::kInference, true, kRead, nullptr, ofAllModels<manifest>, kManifestRoute},
    {"/v1/models",
     Access::kInference,
     true,
     kRead,
     nullptr,
     ofAllModels<modelList>,
     {.summary = "The models: base and adapters", .answer = "ModelList"}},
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
     {.summary = "Where each adapter is", .answer = "AdapterList"}},
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
     {.summary = "The step that runs and the caches"}},
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

const Route* findRoute(std::string_view path) {
  const auto* const found = std::ranges::find_if(kRoutes, [&](const Route& route) { return isOf(route, path); });
  return found == std::end(kRoutes) ? nullptr : found;
}

bool allows(const Route& route, std::string_view method) {
  return std::ranges::any_of(std::views::split(route.allow, std::string_view(", ")),
                             [&](const auto& one) { return std::string_view(one.begin(), one.end()) == method; });
}

// The response, or 304 without a body if the client has a copy with the response's entity tag.
HttpResponse unlessCached(const HttpRequest& request, HttpResponse response) {
  const auto tag = std::ranges::find(response.headers, "etag", &std::pair<std::string, std::string>::first);
  if (tag == response.headers.end()) return response;
  const std::string_view known = request.header("if-none-match");
  if (known != "*" && known.find(tag->second) == std::string_view::npos) return response;
  response.status = 304;
  response.content_type.clear();
  response.body.clear();
  return response;
}

}  // namespace

std::vector<DescribedRoute> describedRoutes() {
  std::vector<DescribedRoute> routes;
  for (const Route& route : kRoutes) routes.push_back({route.path, route.allow, route.about});
  return routes;
}

void Routes::requireKeys(std::shared_ptr<const ApiKeys> keys, std::shared_ptr<ClientRegistry> clients) {
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
  clients_ = std::move(clients);
}

void Routes::serve(std::shared_ptr<const ApiContext> context) {
  metrics_answers_.serve(context);
  std::lock_guard lock(mutex_);
  context_ = std::move(context);
}

void Routes::drain() {
  draining_ = true;
  metrics_answers_.finish();
}

std::shared_ptr<const ApiContext> Routes::readyContext() const {
  if (draining_) throw ApiError::unavailable("The server is shutting down.");
  std::lock_guard lock(mutex_);
  if (!context_) throw ApiError::unavailable("The model is still loading.");
  return context_;
}

void Routes::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  log::debug("{} {} {}", request.id, request.method, request.path);
  const ErrorForm form = errorFormFor(request.path, request.id);
  const Route* route = findRoute(request.path);
  exchange = recordedExchange(
      std::move(exchange),
      std::make_shared<RequestRecord>(metrics_, request, route == nullptr ? std::string_view() : route->path));
  try {
    dispatch(std::move(request), exchange);
  } catch (...) {
    exchange->respond(currentApiError().response(form));
  }
}

void Routes::authorize(HttpRequest& request, Access needed) const {
  std::shared_ptr<const ApiKeys> keys;
  std::shared_ptr<ClientRegistry> clients;
  {
    const std::lock_guard lock(mutex_);
    keys = keys_;
    clients = clients_;
  }
  if (keys != nullptr && needed != Access::kOpen) {
    request.key = keys->authenticate(request);
    request.keys = keys;
    if (needed == Access::kAdmin && !request.key->admin) {
      throw ApiError::forbidden("This API key has no admin rights.", std::nullopt, "insufficient_permissions");
    }
    // The prefix keeps it apart from the clients that are addresses.
    if (clients != nullptr) request.client = clients->find("key " + request.key->name);
  }
  if (needed == Access::kGenerate && limits_ != nullptr && request.method == "POST") {
    request.usage = limits_->admit(request, std::move(keys), std::chrono::steady_clock::now());
  }
}

size_t Routes::bodyLimit(const HttpRequest& head, size_t usual) const {
  const Route* route = findRoute(head.path);
  if (route == nullptr || !route->about.takes_files || !isUpload(head.header("content-type"))) return usual;
  try {
    HttpRequest copy;  // with what authorize() sets and reads
    copy.headers = head.headers;
    copy.client = head.client;
    authorize(copy, route->access);
    const auto context = readyContext();
    const bool takes = context->adapters != nullptr && context->adapters->takesUploads();
    return takes ? std::max(usual, context->max_upload_bytes) : usual;
  } catch (const ApiError&) {
    return usual;  // the request is refused when it is complete
  }
}

void Routes::dispatch(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
  const Route* route = findRoute(request.path);
  authorize(request, route != nullptr ? route->access : Access::kInference);
  if (route == nullptr || (route->answer == page && !has_page_)) throw ApiError::notFound(request.method, request.path);
  if (!allows(*route, request.method)) throw ApiError::methodNotAllowed(request.method, request.path, route->allow);
  if (leaving_ && route->answer == ready) throw ApiError::unavailable("The server is shutting down.");
  const auto context = route->needs_model ? readyContext() : nullptr;
  if (route->answer == nullptr && route->work == nullptr) return metrics_answers_.answer(request, exchange);
  if (route->answer != nullptr) {
    const std::string_view name = std::string_view(request.path).substr(route->path.size());
    return exchange->respond(unlessCached(request, route->answer(context.get(), request, name)));
  }
  checkContentType(request, route->about.takes_files);
  const bool reads = request.method == "GET" || request.method == "HEAD";
  Intake& intake = route->lane == Lane::kAdapters && !reads ? context->adapter_intake : context->intake;
  const auto preparation = std::make_shared<Preparation>(context, intake, route->work, std::move(request), exchange);
  exchange->onAbort([weak = std::weak_ptr(preparation)] {
    if (const auto alive = weak.lock()) alive->abandon();
  });
  preparation->submit();
}

}  // namespace chorus::server
