// Errors as clients see them: a status, and {"error": {"message", "type", "param", "code"}} or Anthropic's form. Text
// that may contain a path of the server must go through clientMessage() (client_message.h) before it becomes a message.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/client.h"
#include "server/http/http.h"

namespace chorus::server {

// The form of the error bodies that the client of one request reads.
struct ErrorForm {
  enum class Api {
    kOpenAi,
    kAnthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}
  };
  Api api = Api::kOpenAi;
  std::string request_id;
};

// The form of the errors of a request to `path`: Anthropic's for /v1/messages and the paths below it.
ErrorForm errorFormFor(std::string_view path, std::string_view request_id);
// The headers of every answer, errors or not, from which the form's clients take the id besides x-request-id.
HttpHeaders idHeaders(const ErrorForm& form);

class ApiError : public std::exception {
 public:
  ApiError(int status, std::string message, std::string type, std::optional<std::string> param,
           std::optional<std::string> code)
      : status_(status),
        message_(std::move(message)),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  // A field that the client must change: status 400, invalid_request_error.
  static ApiError invalid(std::string message, std::optional<std::string> param = std::nullopt,
                          std::optional<std::string> code = std::nullopt);
  static ApiError modelNotFound(std::string_view model);
  static ApiError notFound(std::string_view method, std::string_view path);
  static ApiError methodNotAllowed(std::string_view method, std::string_view path, std::string_view allowed);
  // The queue is full: status 429, worth retrying soon.
  static ApiError overloaded(std::string message);
  // The adapters of active requests leave no room for the model's: status 429, worth retrying soon.
  static ApiError adapterCacheFull(std::string_view model);
  // The model's adapters do not fit into the adapter cache even alone: status 400.
  static ApiError adapterTooLarge(std::string_view model);
  // The adapter's files cannot be served: status 400. param: the field that names the adapter, if one does.
  static ApiError adapterRefused(std::string_view adapter, std::string_view reason,
                                 std::optional<std::string> param = "model");
  // Status 409: something that the request uses changed while it was handled. A retry may succeed at once.
  static ApiError conflict(std::string message);
  // The memory for a request or its answer is not granted: status 429 if the client holds too much of it, 503 if all
  // clients together do.
  static ApiError outOfMemory(MemoryAnswer answer);
  // No API key, or an unknown one: status 401.
  static ApiError unauthenticated(std::string message);
  // The operator does not allow what the request asks for: status 403.
  static ApiError forbidden(std::string message, std::optional<std::string> param, std::string code);
  // Loading, draining or stopped: status 503.
  static ApiError unavailable(std::string message);
  static ApiError timedOut();
  // The request did not begin in time: status 503, worth retrying later.
  static ApiError queueTimedOut(std::chrono::milliseconds timeout);
  static ApiError internal(std::string message);

  // Adds a header to the response; a name in lower case.
  void addHeader(std::string name, std::string value) { headers_.emplace_back(std::move(name), std::move(value)); }

  int status() const { return status_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }
  // The error body, in one line.
  std::string body(const ErrorForm& form = {}) const;
  // Body, status and the headers that steer a client's retries.
  HttpResponse response(const ErrorForm& form = {}) const;

 private:
  int status_;
  std::string message_, type_;
  std::optional<std::string> param_, code_;
  HttpHeaders headers_;
};

// Throws ApiError (400, request_too_complex) if `bytes` are more than a charge of this client can ever be granted.
void checkShare(const ClientCharge& memory, size_t bytes);

// Adds `bytes` to the charge. Throws ApiError::outOfMemory() if they are not granted.
void addCharge(ClientCharge& memory, size_t bytes);

// Converts the exception that is being handled: an ApiError is returned as it is; WorkStopped becomes status 400
// (work), 504 (time) or 503 (cancelled: the server stops); another chorus::Error follows its code;
// std::invalid_argument becomes status 400, std::bad_alloc 503, and anything else 500 without its text. Call inside a
// catch block.
ApiError currentApiError();

}  // namespace chorus::server
