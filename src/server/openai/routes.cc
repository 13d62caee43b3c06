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

constexpr std::string_view kModelPrefix = "/v1/models/";

HttpResponse health(std::string_view message) {
  return {.body = toText(OrderedJson{{"object", "health.response"}, {"message", message}})};
}

ApiError unsupportedType(std::string message) {
  return ApiError(415, std::move(message), "invalid_request_error", std::nullopt, "unsupported_media_type");
}

// A body needs a JSON content type. A web page of another origin can send a body without a type, or with a form's type,
// without a CORS preflight.
void checkContentType(const HttpRequest& request) {
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    throw unsupportedType("Compressed request bodies are not supported.");
  }
  const std::string_view stated = request.header("content-type");
  if (stated.empty() && request.body.empty()) return;
  std::string type(stated.substr(0, stated.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool plain = type.find_first_of(", \t") == std::string::npos;
  if (type == "application/json" || (plain && type.starts_with("application/") && type.ends_with("+json"))) return;
  throw unsupportedType("Content-Type must be application/json.");
}

RequestWork workFor(std::string_view path) {
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
  if (const RequestWork work = workFor(path)) {
    if (request.method != "POST") throw ApiError::methodNotAllowed(request.method, path, "POST");
    const auto context = readyContext();
    checkContentType(request);
    return startIntake(context, work, std::move(request), exchange);
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

void Routes::startIntake(const std::shared_ptr<const ApiContext>& context, RequestWork work, HttpRequest request,
                         const std::shared_ptr<HttpExchange>& exchange) {
  Intake::Job job{.client = request.client ? request.client->id() : 0, .bytes = request.body.size()};
  if (context->request_timeout) job.deadline = request.received + *context->request_timeout;
  // Shared, because a task must be copyable.
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  job.work = [context, work, shared, exchange](WorkMeter& meter) {
    try {
      if (meter.cancelled()) throw ApiError::unavailable("The server is shutting down.");
      work(*context, *shared, exchange, meter);
    } catch (...) {
      const ApiError error = currentApiError();
      log::debug("{} answered {}: {}", shared->id, error.status(), error.message());
      exchange->respond(error.response());
    }
  };
  const auto ticket = std::make_shared<Intake::Ticket>();
  exchange->onAbort([ticket] { ticket->cancel(); });
  switch (context->intake.submit(ticket, std::move(job))) {
    case FairQueue::Answer::kAdded:
      return;
    case FairQueue::Answer::kClientFull:
      throw ApiError::overloaded("Too many requests of this client are waiting; try again soon.");
    case FairQueue::Answer::kFull:
      throw ApiError::unavailable("Too many requests wait; try again soon.");
  }
}

}  // namespace chorus::server
