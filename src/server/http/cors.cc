#include "server/http/cors.h"

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

bool CorsPolicy::allows(std::string_view origin) const {
  if (origin.empty() || all_) return true;
  return std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

HttpHeaders CorsPolicy::answerHeaders(std::string_view origin) const {
  if (origin.empty() || !allows(origin)) return {};
  return {{"access-control-allow-origin", all_ ? "*" : std::string(origin)},
          {"access-control-expose-headers", "x-request-id, retry-after, retry-after-ms, x-should-retry"},
          {"vary", "Origin"}};
}

std::optional<HttpResponse> CorsPolicy::preflight(const HttpRequest& request) const {
  if (request.method != "OPTIONS" || request.header("origin").empty() ||
      request.header("access-control-request-method").empty()) {
    return std::nullopt;
  }
  HttpResponse response{.status = 204, .content_type = "", .body = "", .headers = {}};
  response.headers.emplace_back("access-control-allow-methods", "GET, HEAD, POST, OPTIONS");
  const std::string_view asked = request.header("access-control-request-headers");
  if (!asked.empty() && isNameList(asked)) response.headers.emplace_back("access-control-allow-headers", asked);
  response.headers.emplace_back("access-control-max-age", "600");
  return response;
}

}  // namespace chorus::server
