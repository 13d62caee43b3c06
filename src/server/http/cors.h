// Requests of web pages: which origins may send them, and what browsers must read in the answer.
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
  // Error(kInvalidArgument) that names --cors_origins for other text.
  explicit CorsPolicy(const std::vector<std::string>& origins);

  // Whether a request with that Origin header is served; one without the header is.
  bool allows(std::string_view origin) const;
  // Headers of every answer to an allowed request; none without an Origin header.
  HttpHeaders answerHeaders(std::string_view origin) const;
  // The answer to a browser's question (OPTIONS) whether it may send a request; nullopt for any other request.
  std::optional<HttpResponse> preflight(const HttpRequest& request) const;

 private:
  bool all_ = false;
  std::vector<std::string> origins_;
};

}  // namespace chorus::server
