// GET /openapi.json: describes the routes in OpenAPI 3.1. The schemas of requests are made from the tables of fields
// that the parsers use, those of answers are in answers.json.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/openai/route_description.h"

namespace chorus::server {

struct DescribedRoute {
  std::string_view path;   // one that ends in '/' is followed by a name
  std::string_view allow;  // the methods, as in the header Allow
  RouteDescription about;
};

OrderedJson openApiDocument(std::span<const DescribedRoute> routes);

inline constexpr RouteDescription kOpenApiRoute{.summary = "This description of the routes, in OpenAPI 3.1"};

}  // namespace chorus::server
