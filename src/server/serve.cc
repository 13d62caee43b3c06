#include "server/serve.h"

#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "server/http/shutdown_signal.h"
#include "server/model/loaded_model.h"
#include "server/model/served_engine.h"
#include "server/openai/routes.h"

namespace chorus::server {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

std::unique_ptr<LoadedModel> load(const ServeOptions& options) {
  const ServedEngine engine = locateEngine(options);
  try {
    return std::make_unique<LoadedModel>(options, engine);
  } catch (const Error& e) {
    if (!engine.rebuild || e.code() != ErrorCode::kCorrupt) throw;
    log::warn("the cached engine can't be loaded ({}); building it again", e.what());
  }
  engine.rebuild();
  return std::make_unique<LoadedModel>(options, engine);
}

// Until the event; looks for new adapters now and then.
void serveUntilSignal(const ServeOptions& options, LoadedModel& model, ShutdownSignal& signal) {
  const auto interval =
      options.loraRefreshSeconds > 0 ? std::chrono::seconds(options.loraRefreshSeconds) : std::chrono::hours(1);
  while (!signal.waitFor(interval)) {
    if (options.loraRefreshSeconds > 0) model.refreshAdapters();
  }
}

}  // namespace

void serve(const ServeOptions& options) {
  ShutdownSignal signal;
  // Both would kill the process; as errors of the call they are handled where they happen.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);

  Routes routes;
  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  HttpServer server(http, [&routes](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    routes.handle(std::move(request), std::move(exchange));
  });
  server.start();
  std::printf("listening on %s\n", server.url().c_str());
  std::fflush(stdout);

  const std::unique_ptr<LoadedModel> model = load(options);
  signal.becomeGraceful();
  routes.serve(model->context());
  log::info("ready at {}\n{}", server.url(), model->summary());

  serveUntilSignal(options, *model, signal);
  routes.drain();
  server.stopAccepting();
  if (!server.waitUntilClosed(milliseconds(options.drainTimeoutSeconds))) {
    log::warn("the drain timeout of {} s has passed; cancelling what still runs", options.drainTimeoutSeconds);
  }
  // Requests that still run end with an error, which gets a moment to reach their clients.
  model->stop();
  server.waitUntilClosed(std::chrono::seconds(2));
  server.stop();
  log::info("stopped");
}

}  // namespace chorus::server
