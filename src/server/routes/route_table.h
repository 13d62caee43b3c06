// The table of all URL paths: who may use each, its methods, and the function that answers.
#pragma once

#include <string_view>
#include <vector>

#include "server/http/http.h"
#include "server/model/api_context.h"
#include "server/openai/openapi.h"
#include "server/openai/route_description.h"
#include "server/routes/preparation.h"

namespace chorus::server {

// The keys that may use a route, if the server has API keys.
enum class Access {
  kOpen,       // everybody
  kInference,  // any key
  kGenerate,   // any key; the request counts against the limits on its use
  kAdmin       // keys with admin rights
};

// The intake in which a route's work runs.
enum class Lane {
  kRequests,  // ApiContext::intake
  kAdapters,  // ApiContext::adapter_intake, because it reads an adapter's files or waits for a thread that does; GET
              // and HEAD: ApiContext::list_intake
  kLists      // ApiContext::list_intake
};

struct Route {
  // One that ends in '/' is followed by a name, except the root. Elsewhere a name is written as "{name}".
  std::string_view path;
  Access access;
  bool needs_model;        // refused with 503 while the model loads and while the server drains
  std::string_view allow;  // the methods, as in the header Allow
  // answer: the answer to GET and HEAD; context is null unless needs_model, name is what follows `path`. work: prepares
  // the other methods in the intake, and GET and HEAD if there is no `answer`. Neither: the metrics, which Routes
  // passes to MetricsAnswers.
  HttpResponse (*answer)(const ApiContext* context, const HttpRequest& request, std::string_view name);
  RequestWork work;
  RouteDescription about;  // for /openapi.json
  Lane lane = Lane::kRequests;
};

// The route of a request's path (percent-encoding kept), or null. It lives as long as the program.
const Route* findRoute(std::string_view path);
bool allows(const Route& route, std::string_view method);
// Whether the route is the page for browsers.
bool isPage(const Route& route);
// Whether the route tells if requests are served.
bool isReadiness(const Route& route);

// All routes, for /openapi.json.
std::vector<DescribedRoute> describedRoutes();

}  // namespace chorus::server
