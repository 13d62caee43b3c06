#include "server/errors.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace chorus::server {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";
constexpr std::string_view kServerError = "server_error";

OrderedJson orNull(const std::optional<std::string>& text) { return text ? OrderedJson(*text) : OrderedJson(); }

}  // namespace

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

ApiError ApiError::conflict(std::string message) {
  ApiError error(409, std::move(message), "conflict_error", std::nullopt, "conflict");
  error.headers_.emplace_back("retry-after-ms", "500");
  error.headers_.emplace_back("retry-after", "1");
  return error;
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

ApiError ApiError::internal(std::string message) {
  return ApiError(500, std::move(message), std::string(kServerError), std::nullopt, "internal_error");
}

std::string ApiError::body() const {
  OrderedJson error;
  error["message"] = message_;
  error["type"] = type_;
  error["param"] = orNull(param_);
  error["code"] = orNull(code_);
  return OrderedJson{{"error", std::move(error)}}.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

HttpResponse ApiError::response() const {
  return {.status = status_, .contentType = "application/json", .body = body(), .headers = headers_};
}

std::string clientMessage(std::string_view text) {
  const auto endsWord = [](char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\'' || c == '"' || c == '`' || c == '(' || c == ')' ||
           c == ',' || c == ';' || c == '=' || c == '<' || c == '>' || c == '[' || c == ']' || c == '{' || c == '}';
  };
  std::string out;
  size_t i = 0;
  while (i < text.size()) {
    const bool wordStart = i == 0 || endsWord(text[i - 1]) || text[i - 1] == ':';
    const bool absolute = text[i] == '/' && i + 1 < text.size() && !endsWord(text[i + 1]);
    const bool relative = (text[i] == '~' || text[i] == '.') && text.substr(i).find('/') <= 2;
    if (!wordStart || (!absolute && !relative)) {
      out += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && !endsWord(text[end])) ++end;
    std::string_view word = text.substr(i, end - i);
    std::string_view tail;
    while (!word.empty() && (word.back() == ':' || word.back() == '.' || word.back() == '/')) {
      if (word.back() == ':') tail = ":";
      word.remove_suffix(1);
    }
    out += word.substr(word.rfind('/') == std::string_view::npos ? 0 : word.rfind('/') + 1);
    out += tail;
    i = end;
  }
  return out;
}

ApiError currentApiError() {
  try {
    throw;
  } catch (const ApiError& e) {
    return e;
  } catch (const Error& e) {
    switch (e.code()) {
      case ErrorCode::kInvalidArgument:
      case ErrorCode::kUnsupported:
        return ApiError::invalid(clientMessage(e.what()));
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
    return ApiError::unavailable("The server is short of memory; try again later.");
  } catch (const std::exception& e) {
    log::error("request failed: {}", e.what());
    return ApiError::internal("The server had an error while processing the request.");
  } catch (...) {
    return ApiError::internal("The server had an error while processing the request.");
  }
}

}  // namespace chorus::server
