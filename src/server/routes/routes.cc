#include "server/routes/routes.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "server/admin/upload_body.h"
#include "server/errors.h"
#include "server/metrics/recorded_exchange.h"
#include "server/openai/generation_writer.h"

namespace chorus::server {
namespace {

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
  if (request.body.empty() && (request.reads() || stated.empty())) return;
  std::string type(stated.substr(0, stated.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool plain = type.find_first_of(", \t") == std::string::npos;
  if (takes_files && isUpload(stated)) return;
  if (type == "application/json" || (plain && type.starts_with("application/") && type.ends_with("+json"))) return;
  throw unsupportedType("Content-Type must be application/json.");
}

Intake& intakeOf(const ApiContext& context, const Route& route, const HttpRequest& request) {
  if (route.lane == Lane::kRequests) return context.intake;
  return route.lane == Lane::kLists || request.reads() ? context.list_intake : context.adapter_intake;
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
  if (route == nullptr || (isPage(*route) && !has_page_)) throw ApiError::notFound(request.method, request.path);
  if (!allows(*route, request.method)) throw ApiError::methodNotAllowed(request.method, request.path, route->allow);
  if (leaving_ && isReadiness(*route)) throw ApiError::unavailable("The server is shutting down.");
  const auto context = route->needs_model ? readyContext() : nullptr;
  if (route->answer == nullptr && route->work == nullptr) return metrics_answers_.answer(request, exchange);
  if (route->answer != nullptr) {
    const std::string_view name = std::string_view(request.path).substr(route->path.size());
    return exchange->respond(unlessCached(request, route->answer(context.get(), request, name)));
  }
  checkContentType(request, route->about.takes_files);
  Intake& intake = intakeOf(*context, *route, request);
  prepare(context, intake, route->work, std::move(request), exchange);
}

}  // namespace chorus::server
