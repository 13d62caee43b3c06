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

  // Whether a request with these Origin and Host headers is served. A request without Origin (empty `origin`) always
  // is, and one from a page of this server itself, if Host is an IP address or localhost. A page under another name may
  // have come from anywhere: its owner decides which address the name has, and may change it to this server's (DNS
  // rebinding).
  bool allows(std::string_view origin, std::string_view host) const;
  // Headers of the answer to a request with that Origin header; none if `origin` is empty or not allowed.
  HttpHeaders answerHeaders(std::string_view origin) const;
  // Answers a CORS preflight request (OPTIONS); nullopt for any other request.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;

 private:
  bool isListed(std::string_view origin) const;

  bool all_ = false;
  std::vector<std::string> origins_;
};

}  // namespace chorus::server
