#include "server/openai/routes.h"

#include <algorithm>

#include "base/log.h"
#include "server/errors.h"
#include "server/openai/chat.h"
#include "server/openai/completions.h"
#include "server/openai/generation_writer.h"
#include "server/openai/models.h"

namespace chorus::server {
namespace {

using Work = void (*)(const ApiContext&, const HttpRequest&, const std::shared_ptr<HttpExchange>&);

constexpr std::string_view kModelPrefix = "/v1/models/";

HttpResponse health(std::string_view message) {
  return {.body = toText(OrderedJson{{"object", "health.response"}, {"message", message}})};
}

// Types that a web page of another origin could send without asking are refused, a missing type is not.
void checkContentType(const HttpRequest& request) {
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    throw ApiError(415, "Compressed request bodies are not supported.", "invalid_request_error", std::nullopt,
                   "unsupported_media_type");
  }
  std::string type(request.header("content-type").substr(0, request.header("content-type").find(';')));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  if (type.empty() || type == "application/json" || type.ends_with("+json")) return;
  throw ApiError(415, "Content-Type must be application/json.", "invalid_request_error", std::nullopt,
                 "unsupported_media_type");
}

Work workFor(std::string_view path) {
  if (path == "/v1/completions") return &handleCompletion;
  if (path == "/v1/chat/completions") return &handleChat;
  return nullptr;
}

bool isReadOnlyPath(std::string_view path) {
  return path == "/v1/models" || path.starts_with(kModelPrefix) || path == "/v1/health/live" ||
         path == "/v1/health/ready" || path == "/v1/version";
}

}  // namespace

void Routes::serve(std::shared_ptr<const ApiContext> context) {
  std::lock_guard lock(mutex_);
  context_ = std::move(context);
}

std::shared_ptr<const ApiContext> Routes::readyContext() const {
  if (draining_) throw ApiError::unavailable("The server is shutting down.");
  std::lock_guard lock(mutex_);
  if (!context_) throw ApiError::unavailable("The model is still loading.");
  return context_;
}

void Routes::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  log::debug("{} {} {}", request.id, request.method, request.path);
  try {
    dispatch(std::move(request), exchange);
  } catch (...) {
    exchange->respond(currentApiError().response());
  }
}

void Routes::dispatch(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
  const std::string& path = request.path;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (const Work work = workFor(path)) {
    if (request.method != "POST") throw ApiError::methodNotAllowed(request.method, path, "POST");
    const auto context = readyContext();
    checkContentType(request);
    context->intake.post([context, work, request = std::move(request), exchange] {
      try {
        work(*context, request, exchange);
      } catch (...) {
        const ApiError error = currentApiError();
        log::debug("{} answered {}: {}", request.id, error.status(), error.message());
        exchange->respond(error.response());
      }
    });
    return;
  }
  if (!isReadOnlyPath(path)) throw ApiError::notFound(request.method, path);
  if (!reads) throw ApiError::methodNotAllowed(request.method, path, "GET, HEAD");
  if (path == "/v1/health/live") return exchange->respond(health("Service is live."));
  if (path == "/v1/version") {
    return exchange->respond({.body = toText(OrderedJson{{"release", CHORUS_VERSION}, {"api", "1.0.0"}})});
  }
  const auto context = readyContext();
  if (path == "/v1/health/ready") return exchange->respond(health("Service is ready."));
  if (path == "/v1/models") return exchange->respond(listModels(context->models));
  exchange->respond(describeModel(context->models, std::string_view(path).substr(kModelPrefix.size())));
}

}  // namespace chorus::server
