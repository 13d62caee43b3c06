#include "server/http/cors.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/error.h"

namespace chorus::server {
namespace {

bool isOrigin(std::string_view text) {
  if (text == "null") return true;
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0 || text.size() == scheme + 3) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f && c != ',' && c != '"'; }) &&
         text.find('/', scheme + 3) == std::string_view::npos;
}

// Accepts only names, commas and spaces, because the list is copied into a header of the answer.
bool isNameList(std::string_view text) {
  constexpr size_t kLongest = 1024;
  return text.size() <= kLongest && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
                  c == ',' || c == ' ';
         });
}

// Whether the value of a Host header is an IP address or localhost, with or without a port.
bool isAddress(std::string_view host) {
  std::string name(host.substr(0, host.rfind(':')));
  const bool bracketed = host.starts_with('[');
  if (bracketed) name = host.substr(1, std::min(host.find(']'), host.size()) - 1);
  in6_addr address{};
  return name == "localhost" || inet_pton(bracketed ? AF_INET6 : AF_INET, name.c_str(), &address) == 1;
}

bool isOwnPage(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme) && origin.substr(scheme.size()) == host) return isAddress(host);
  }
  return false;
}

}  // namespace

CorsPolicy::CorsPolicy(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin == "*") {
      all_ = true;
    } else if (isOrigin(origin)) {
      origins_.push_back(origin);
    } else {
      fail(ErrorCode::kInvalidArgument, "--cors_origins: '{}' is not an origin such as https://app.example:8443",
           origin);
    }
  }
}

bool CorsPolicy::isListed(std::string_view origin) const {
  return all_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

bool CorsPolicy::allows(std::string_view origin, std::string_view host) const {
  return origin.empty() || isListed(origin) || isOwnPage(origin, host);
}

HttpHeaders CorsPolicy::answerHeaders(std::string_view origin) const {
  if (origin.empty() || !isListed(origin)) return {};
  return {{"access-control-allow-origin", all_ ? "*" : std::string(origin)},
          {"access-control-expose-headers",
           "x-request-id, retry-after, retry-after-ms, x-should-retry, x-ratelimit-limit-requests, "
           "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, "
           "x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, anthropic-ratelimit-requests-limit, "
           "anthropic-ratelimit-requests-remaining, anthropic-ratelimit-requests-reset, "
           "anthropic-ratelimit-tokens-limit, anthropic-ratelimit-tokens-remaining, anthropic-ratelimit-tokens-reset"},
          {"vary", "Origin"}};
}

std::optional<HttpResponse> CorsPolicy::preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.header("origin").empty() ||
      request.header("access-control-request-method").empty()) {
    return std::nullopt;
  }
  HttpResponse response{.status = 204, .content_type = "", .body = "", .headers = {}};
  response.headers.emplace_back("access-control-allow-methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS");
  const std::string_view asked = request.header("access-control-request-headers");
  if (!asked.empty() && isNameList(asked)) response.headers.emplace_back("access-control-allow-headers", asked);
  response.headers.emplace_back("access-control-max-age", "600");
  return response;
}

}  // namespace chorus::server
