// Errors as clients see them: {"error": {"message", "type", "param", "code"}} with a status. Messages are the
// server's own words; text that may hold a server path goes through clientMessage().
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/http.h"

namespace chorus::server {

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
  // Queue or adapter cache full: status 429, worth retrying soon.
  static ApiError overloaded(std::string message);
  // What was asked of changed meanwhile: status 409, worth retrying at once.
  static ApiError conflict(std::string message);
  // The memory for a request or its answer is not granted: status 429 where the client holds too much of it, 503 where
  // all clients together do.
  static ApiError outOfMemory(MemoryAnswer answer);
  // The operator does not allow it: status 403.
  static ApiError forbidden(std::string message, std::optional<std::string> param, std::string code);
  // Loading, draining or stopped: status 503.
  static ApiError unavailable(std::string message);
  static ApiError timedOut();
  static ApiError internal(std::string message);

  int status() const { return status_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }
  // The error body, in one line.
  std::string body() const;
  // Body, status and the headers that steer a client's retries.
  HttpResponse response() const;

 private:
  int status_;
  std::string message_, type_;
  std::optional<std::string> param_, code_;
  HttpHeaders headers_;
};

// The text without any path: absolute and relative ones, with slashes or backslashes, URLs, percent-encoded ones. Of
// each the last component is left. A path may hold spaces: between two pieces of punctuation everything from the word
// of the first slash to the last slash counts as one, so that ordinary words between two relative paths may go too.
std::string clientMessage(std::string_view text);

// The ApiError for whatever is being handled: an ApiError as it is, WorkStopped as status 400 (work), 504 (time) or 503
// (cancelled: the server stops), another chorus::Error by its code, std::invalid_argument as status 400, anything else
// as status 500 without its text. Call inside a catch block.
ApiError currentApiError();

}  // namespace chorus::server
