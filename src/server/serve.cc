#include "server/serve.h"

#include <malloc.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory_reserve.h"
#include "formats/yaml.h"
#include "server/client_message.h"
#include "server/http/shutdown_signal.h"
#include "server/http/tls_certificates.h"
#include "server/metrics/server_metrics.h"
#include "server/model/engine_cache.h"
#include "server/model/loaded_model.h"
#include "server/model/served_engine.h"
#include "server/routes/routes.h"
#include "server/service_manager.h"

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

HttpServerOptions httpOptions(const ServeOptions& options) {
  HttpServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.max_connections = static_cast<size_t>(options.max_connections);
  http.max_connections_per_client = static_cast<size_t>(options.max_connections_per_client);
  http.memory.server = static_cast<size_t>(options.http_memory_mib) << 20;
  http.memory.client = http.memory.server / 4;
  http.min_read_rate = static_cast<uint64_t>(options.min_read_rate);
  http.cors_origins = options.cors_origins;
  http.trusted_proxies = options.trusted_proxies;
  return http;
}

// The allocator keeps freed memory, in an arena for each thread. With these settings it returns large blocks to the
// system at once, and uses few arenas for the others.
void boundAllocator() {
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

// Raises the limit on file descriptors as far as the system allows. The low limit that processes begin with protects
// programs that use select(), which this one does not.
void allowDescriptors(const ServeOptions& options) {
  constexpr rlim_t kOthers = 512;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t needed = static_cast<rlim_t>(options.max_connections) + kOthers;
  const rlim_t had = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = had;
  if (limit.rlim_cur < needed) {
    log::warn("the system allows {} open files, fewer than --max_connections {} needs", limit.rlim_cur,
              options.max_connections);
  }
}

bool isLoopback(const std::string& host) { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

// Returns freed memory to the system when clients use at most half of what they used before, and keeps a reserve.
class MemoryReturn {
 public:
  explicit MemoryReturn(HttpServer& server) : server_(server) {}

  void look() {
    if (!reserve_.refill()) log::warn("the system has no memory left");
    server_.freeUnusedMemory();
    constexpr size_t kWorth = size_t{8} << 20;
    const size_t used = server_.memoryUsed();
    most_ = std::max(most_, used);
    if (most_ < kWorth || used > most_ / 2) return;
    malloc_trim(0);
    most_ = used;
  }

 private:
  HttpServer& server_;
  size_t most_ = 0;
  MemoryReserve reserve_{size_t{4} << 20};
};

using Clock = std::chrono::steady_clock;

// The end of the drain timeout, in which requests are cancelled, threads end and clients read their last answers.
constexpr std::chrono::milliseconds kFinalPhase{3000};

// The part of a drain timeout in which nothing is cancelled.
std::chrono::milliseconds untilCancel(std::chrono::milliseconds timeout) {
  return timeout - std::min(kFinalPhase, timeout / 2);
}

// The moments of a drain that begins now.
struct Drain {
  explicit Drain(std::chrono::milliseconds timeout)
      : end(Clock::now() + timeout), cancel(end - timeout + untilCancel(timeout)) {}

  Clock::time_point end;     // when the process should have ended
  Clock::time_point cancel;  // when requests that still run are cancelled
};

// Ends the acceptance of requests. Proxies see that the server is not ready and send new requests elsewhere; those that
// they still send within the delay are answered.
void leave(const ServeOptions& options, Routes& routes, HttpServer& server, ServiceManager& manager) {
  const auto delay = milliseconds(options.drain_delay_seconds);
  // A step of a large model that has begun may end only after the drain timeout.
  constexpr std::chrono::seconds kLastStep{15};
  manager.stopping("Finishing requests", delay + milliseconds(options.drain_timeout_seconds) + kLastStep);
  server.closeAfterAnswers();
  routes.leave();
  if (delay.count() > 0) {
    log::info("not ready any more; requests are still accepted for {} s", options.drain_delay_seconds);
    std::this_thread::sleep_for(delay);
  }
  server.stopAccepting(std::min(HttpServer::kLastArrivals, untilCancel(milliseconds(options.drain_timeout_seconds))));
}

// Ends the process then, if it has not ended by itself: a load of an adapter cannot be stopped, and the model's end
// waits for it.
void endProcessAt(Clock::time_point end) {
  std::thread([end] {
    std::this_thread::sleep_until(end);
    std::fflush(nullptr);
    std::_Exit(EXIT_SUCCESS);
  }).detach();
}

// Waits until the last answer is read. Returns false when it is time to cancel what still runs.
bool finishRequests(const Drain& drain, HttpServer& server, LoadedModel& model) {
  constexpr std::chrono::milliseconds kTick{500};
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(drain.cancel - Clock::now());
    if (server.waitUntilClosed(std::clamp(left, std::chrono::milliseconds(0), kTick))) return true;
    if (left <= kTick) return false;
    model.endLongWaits();
  }
}

// The keys of --api_key or --api_keys_file. A changed file is read again; one with faults leaves the old keys.
class KeySource {
 public:
  KeySource(const ServeOptions& options, Routes& routes, std::shared_ptr<ClientRegistry> clients)
      : file_(options.api_keys_file), routes_(routes), clients_(std::move(clients)) {
    if (!options.api_key.empty()) {
      routes_.requireKeys(std::make_shared<const ApiKeys>(ApiKeys::single(options.api_key)), clients_);
    } else if (!file_.empty()) {
      stamp_ = stampOf(file_);
      read();
    }
  }

  // Reads the file again if it has changed, or in any case with `forced`.
  void look(bool forced) {
    if (file_.empty()) return;
    try {
      const auto now = stampOf(file_);
      if (now == stamp_ && !forced) return;
      stamp_ = now;
      fault_.clear();
      read();
    } catch (const std::exception& e) {
      if (std::exchange(fault_, e.what()) != e.what()) log::error("the API keys stay as they were: {}", e.what());
    }
  }

 private:
  void read() {
    auto keys = std::make_shared<const ApiKeys>(ApiKeys::parse(readFile(file_, kMaxYamlBytes), file_));
    const size_t count = keys->size();
    routes_.requireKeys(std::move(keys), clients_);
    log::info("{} API keys from {}", count, file_);  // last: who waits for this line expects that the keys are in use
  }

  const std::string file_;
  Routes& routes_;
  const std::shared_ptr<ClientRegistry> clients_;
  std::optional<FileStamp> stamp_;
  std::string fault_;  // of the last look; each is logged once
};

// Null if the server speaks HTTP without TLS.
std::shared_ptr<TlsCertificates> makeCertificates(const ServeOptions& options) {
  if (options.tls_cert_file.empty() && options.tls_key_file.empty()) {
    if (options.tls_client_ca_file.empty()) return nullptr;
    fail(ErrorCode::kInvalidArgument, "--tls_client_ca_file needs --tls_cert_file and --tls_key_file");
  }
  return std::make_shared<TlsCertificates>(
      TlsFiles{.cert = options.tls_cert_file, .key = options.tls_key_file, .client_ca = options.tls_client_ca_file});
}

void warnOfReach(const ServeOptions& options) {
  if (isLoopback(options.host)) return;
  const bool has_keys = !options.api_key.empty() || !options.api_keys_file.empty();
  log::warn("--host {}: other machines can reach the server{}", options.host,
            has_keys ? "" : ", and it needs no API key (--api_key, --api_keys_file)");
}

std::shared_ptr<ServerMetrics> makeMetrics(const ServeOptions& options, const HttpServerOptions& http,
                                           std::shared_ptr<const LimitCounters> limits) {
  ServerMetrics::Options metrics{.max_adapters = static_cast<size_t>(options.metrics_max_adapters),
                                 .access_log = nullptr,
                                 .http = http.counters,
                                 .limits = std::move(limits)};
  if (options.access_log.value_or(options.log_json)) {
    metrics.access_log = std::make_shared<AccessLog>(options.log_json ? LogFormat::kJson : LogFormat::kText,
                                                     std::make_shared<spdlog::sinks::stderr_sink_mt>());
  }
  return std::make_shared<ServerMetrics>(std::move(metrics));
}

// Clients must not see these paths in errors.
std::vector<std::string> pathsOf(const ServeOptions& options) {
  std::vector<std::string> paths = options.lora_allowed_roots;
  for (const AdapterPlace& place : options.lora_directories) {
    paths.push_back(place.text);
    // NAME=PATH, although a path may have an equals sign too.
    if (const size_t at = place.text.find('='); at != std::string::npos) paths.push_back(place.text.substr(at + 1));
  }
  for (const std::string* path : {&options.model_directory, &options.engine_directory, &options.tokenizer_directory,
                                  &options.lora_upload_dir, &options.cache_directory}) {
    if (!path->empty()) paths.push_back(*path);
  }
  try {
    if (options.cache_directory.empty()) paths.push_back(defaultCacheDirectory().string());
  } catch (const Error&) {
    // There is none, and the server does not start if it needs one.
  }
  return paths;
}

// Whether there are files that SIGHUP reads again. Otherwise the signal ends the process, as at the end of a terminal.
bool reloads(const ServeOptions& options) {
  return !options.tls_cert_file.empty() || !options.api_keys_file.empty() || !options.lora_directories.empty();
}

}  // namespace

void serve(const ServeOptions& options) {
  ServiceManager manager;
  ShutdownSignal signal(reloads(options) || manager.isListening());
  // Both signals would kill the process. When they are ignored, the call fails instead, and its error is handled there.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);

  setServerPaths(pathsOf(options));
  boundAllocator();
  allowDescriptors(options);

  HttpServerOptions http = httpOptions(options);
  const std::shared_ptr<TlsCertificates> certificates = makeCertificates(options);
  http.tls = certificates;
  const auto refusals = std::make_shared<LimitCounters>();
  const std::shared_ptr<ServerMetrics> metrics = makeMetrics(options, http, refusals);
  http.on_unrouted = [metrics](const UnroutedAnswer& answer) { metrics->countUnrouted(answer); };
  Routes routes(options.page, metrics,
                std::make_shared<UsageLimits>(UsageLimits::Options{
                    .client = options.client_limits, .adapter = options.adapter_limits, .counters = refusals}));
  http.body_limit = [&routes, usual = http.max_body_bytes](const HttpRequest& head) {
    return routes.bodyLimit(head, usual);
  };
  HttpServer server(std::move(http), [&routes](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    routes.handle(std::move(request), std::move(exchange));
  });
  KeySource keys(options, routes, server.clients());
  warnOfReach(options);
  server.start();
  std::printf("listening on %s\n", server.url().c_str());
  std::fflush(stdout);

  manager.loading();
  const std::unique_ptr<LoadedModel> model = load(options);
  signal.becomeGraceful();
  routes.serve(model->context());
  log::info("ready at {}", server.url());
  infoLines(model->summary());
  const std::string status = fmt::format("Serving at {}", server.url());
  manager.ready(status);

  MemoryReturn memory(server);
  while (!signal.waitFor(std::chrono::milliseconds(500))) {
    memory.look();
    model->endLongWaits();
    const bool reload = signal.takeReload();
    if (reload) manager.reloading();
    keys.look(reload);
    if (certificates) certificates->refresh(reload);
    if (reload) {
      model->rescanAdapters();
      manager.ready(status);
    }
    manager.alive();
  }
  leave(options, routes, server, manager);
  const Drain drain(milliseconds(options.drain_timeout_seconds));
  const bool closed = finishRequests(drain, server, *model);
  routes.drain();
  if (!closed) {
    log::warn("cancelling what still runs: the drain timeout of {} s ends soon", options.drain_timeout_seconds);
  }
  // Requests that still run end with an error. The waits below give it time to reach the clients.
  if (!model->stop()) {
    // A thread that still runs uses what would be destroyed from here on, so the process ends without destroying it.
    log::warn("a thread that prepares a request did not stop in time; exiting without it");
    server.waitUntilClosed(std::chrono::milliseconds(200));
    log::info("stopped");
    std::fflush(nullptr);
    std::_Exit(EXIT_SUCCESS);
  }
  // Also after a short drain timeout, clients have a moment to read why their requests ended.
  constexpr std::chrono::milliseconds kLeast{500}, kMost{2000};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(drain.end - Clock::now());
  server.waitUntilClosed(std::clamp(left, kLeast, kMost));
  server.stop();
  log::info("stopped");
  endProcessAt(std::max(drain.end, Clock::now() + kLeast));
}

}  // namespace chorus::server
