// Cross-origin requests of web pages (CORS): which origins may send them, and which headers their answers have.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http.h"

namespace chorus::server {

class CorsPolicy {
 public:
  CorsPolicy() = default;  // allows no origin
  // Origins as browsers write them ("https://app.example:8443", "null"), or "*" for all. Throws
  // Error(kInvalidArgument), which names --cors_origins, for other text.
  explicit CorsPolicy(const std::vector<std::string>& origins);

  // Whether a request with that Origin header is served. A request without the header (empty `origin`) always is.
  bool allows(std::string_view origin) const;
  // Headers of the answer to a request with that Origin header; none if `origin` is empty or not allowed.
  HttpHeaders answerHeaders(std::string_view origin) const;
  // Answers a CORS preflight request (OPTIONS); nullopt for any other request.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;

 private:
  bool all_ = false;
  std::vector<std::string> origins_;
};

}  // namespace chorus::server
