#include "server/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/work_meter.h"
#include "server/client_message.h"

namespace chorus::server {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kServerError = "server_error";

OrderedJson orNull(const std::optional<std::string>& text) { return text ? OrderedJson(*text) : OrderedJson(); }

// Anthropic's name for the kind of an error.
const char* anthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 400 && status < 500 && status != 409 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ErrorForm errorFormFor(std::string_view path, std::string_view request_id) {
  const bool anthropic = path == "/v1/messages" || path.starts_with("/v1/messages/");
  return {anthropic ? ErrorForm::Api::kAnthropic : ErrorForm::Api::kOpenAi, std::string(request_id)};
}

HttpHeaders idHeaders(const ErrorForm& form) {
  if (form.api != ErrorForm::Api::kAnthropic) return {};
  return {{"request-id", form.request_id}};
}

ApiError ApiError::invalid(std::string message, std::optional<std::string> param, std::optional<std::string> code) {
  return ApiError(400, std::move(message), std::string(kInvalidRequest), std::move(param), std::move(code));
}

ApiError ApiError::modelNotFound(std::string_view model) {
  constexpr size_t kLongestEchoed = 256;
  if (model.size() > kLongestEchoed) {
    return ApiError(404, "The model does not exist: its name is too long.", std::string(kInvalidRequest), "model",
                    "model_not_found");
  }
  return ApiError(404, fmt::format("The model `{}` does not exist or you do not have access to it.", model),
                  std::string(kInvalidRequest), "model", "model_not_found");
}

ApiError ApiError::notFound(std::string_view method, std::string_view path) {
  return ApiError(404, fmt::format("Unknown request URL: {} {}.", method, path.substr(0, 256)),
                  std::string(kInvalidRequest), std::nullopt, "unknown_url");
}

ApiError ApiError::methodNotAllowed(std::string_view method, std::string_view path, std::string_view allowed) {
  ApiError error(405, fmt::format("Not allowed to {} on {}; use {}.", method, path, allowed),
                 std::string(kInvalidRequest), std::nullopt, "method_not_supported");
  error.headers_.emplace_back("allow", allowed);
  return error;
}

ApiError ApiError::overloaded(std::string message) {
  ApiError error(429, std::move(message), "rate_limit_error", std::nullopt, "overloaded");
  error.headers_.emplace_back("retry-after-ms", "500");
  error.headers_.emplace_back("retry-after", "1");
  return error;
}

ApiError ApiError::adapterCacheFull(std::string_view model) {
  ApiError error = overloaded(fmt::format(
      "The CPU PEFT cache is full: the adapters of active requests leave no room for the adapter `{}`. Reduce "
      "the number of adapters in use and try again, or let the operator raise --max_cpu_loras "
      "(NIM_MAX_CPU_LORAS).",
      model));
  error.code_ = "adapter_cache_full";
  return error;
}

ApiError ApiError::adapterTooLarge(std::string_view model) {
  return ApiError(
      400,
      fmt::format("The adapter `{}` is larger than the adapter cache. The operator can raise --max_cpu_loras "
                  "(NIM_MAX_CPU_LORAS) and --max_gpu_loras (NIM_MAX_GPU_LORAS).",
                  model),
      std::string(kInvalidRequest), "model", "adapter_too_large");
}

ApiError ApiError::adapterRefused(std::string_view adapter, std::string_view reason, std::optional<std::string> param) {
  return invalid(fmt::format("The adapter '{}' cannot be served: {}", adapter, reason), std::move(param),
                 "adapter_refused");
}

ApiError ApiError::conflict(std::string message) {
  ApiError error(409, std::move(message), "conflict_error", std::nullopt, "conflict");
  error.headers_.emplace_back("retry-after-ms", "500");
  error.headers_.emplace_back("retry-after", "1");
  return error;
}

ApiError ApiError::outOfMemory(MemoryAnswer answer) {
  if (answer == MemoryAnswer::kServerFull) {
    return unavailable("The server's memory limit for requests and answers is reached; try again later.");
  }
  return overloaded(
      "The memory limit for one client's requests and answers is reached; try again when some of them have ended, or "
      "send smaller requests.");
}

ApiError ApiError::unauthenticated(std::string message) {
  message += " Send one in the header 'Authorization: Bearer KEY'.";
  ApiError error(401, std::move(message), std::string(kInvalidRequest), std::nullopt, "invalid_api_key");
  error.headers_.emplace_back("www-authenticate", "Bearer");
  return error;
}

ApiError ApiError::forbidden(std::string message, std::optional<std::string> param, std::string code) {
  return ApiError(403, std::move(message), "permission_error", std::move(param), std::move(code));
}

ApiError ApiError::unavailable(std::string message) {
  ApiError error(503, std::move(message), std::string(kServerError), std::nullopt, "unavailable");
  error.headers_.emplace_back("retry-after", "1");
  return error;
}

ApiError ApiError::timedOut() {
  ApiError error(504, "The request did not finish within the server's request timeout; ask for fewer tokens.",
                 std::string(kServerError), std::nullopt, "timeout");
  error.headers_.emplace_back("x-should-retry", "false");
  return error;
}

ApiError ApiError::queueTimedOut(std::chrono::milliseconds timeout) {
  ApiError error = unavailable(fmt::format(
      "The request did not begin to run within its queue timeout of {} ms (x-request-timeout-ms, --queue_timeout); try "
      "again later.",
      timeout.count()));
  error.code_ = "queue_timeout";
  return error;
}

ApiError ApiError::internal(std::string message) {
  return ApiError(500, std::move(message), std::string(kServerError), std::nullopt, "internal_error");
}

std::string ApiError::body(const ErrorForm& form) const {
  OrderedJson error = OrderedJson::object(), body = OrderedJson::object();
  if (form.api == ErrorForm::Api::kAnthropic) {
    error["type"] = anthropicType(status_);
    error["message"] = message_;
    body["type"] = "error";
    body["error"] = std::move(error);
    body["request_id"] = form.request_id;
    return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  error["message"] = message_;
  error["type"] = type_;
  error["param"] = orNull(param_);
  error["code"] = orNull(code_);
  body["error"] = std::move(error);
  return body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpResponse ApiError::response(const ErrorForm& form) const {
  return {.status = status_, .content_type = "application/json", .body = body(form), .headers = headers_};
}

void checkShare(const ClientCharge& memory, size_t bytes) {
  if (memory.client() && bytes > memory.client()->memory().large.limit()) {
    throw ApiError::invalid(
        "The request is too long or too complex: it needs more than one client's share of the server's memory.",
        std::nullopt, "request_too_complex");
  }
}

void addCharge(ClientCharge& memory, size_t bytes) {
  const MemoryAnswer answer = memory.add(bytes);
  if (answer != MemoryAnswer::kGranted) throw ApiError::outOfMemory(answer);
}

ApiError currentApiError() {
  try {
    throw;
  } catch (const ApiError& e) {
    return e;
  } catch (const WorkStopped& e) {
    switch (e.reason()) {
      case WorkStopped::Reason::kWork:
        return ApiError::invalid(e.what(), std::nullopt, "work_limit_exceeded");
      case WorkStopped::Reason::kDeadline:
        return ApiError(
            504,
            "Parsing and tokenizing the request exceeded the server's time limit; send a shorter or simpler request.",
            std::string(kServerError), std::nullopt, "timeout");
      case WorkStopped::Reason::kCancelled:
        break;
    }
    return ApiError::unavailable("The server is shutting down; send the request again later.");
  } catch (const Error& e) {
    switch (e.code()) {
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kUnsupported:
      case ErrorCode::kTooLarge:
        return ApiError::invalid(clientMessage(e.what()));
      case ErrorCode::kBusy:
      case ErrorCode::kExhausted:
        return ApiError::overloaded(clientMessage(e.what()));
      case ErrorCode::kConflict:
        return ApiError::conflict(clientMessage(e.what()));
      case ErrorCode::kNotFound:
      case ErrorCode::kCorrupt:
      case ErrorCode::kInternal:
        break;
    }
    log::error("request failed: {}", e.what());
    return ApiError::internal(clientMessage(e.what()));
  } catch (const std::invalid_argument& e) {
    return ApiError::invalid(clientMessage(e.what()));
  } catch (const std::bad_alloc&) {
    return ApiError::unavailable("The server is out of memory; try again later.");
  } catch (const std::exception& e) {
    log::error("request failed: {}", e.what());
    return ApiError::internal("The server had an error while processing the request.");
  } catch (...) {
    return ApiError::internal("The server had an error while processing the request.");
  }
}

}  // namespace chorus::server
