#include "server/http/http.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <limits>
#include <list>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http/http_connection.h"

namespace chorus::server {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

namespace {

// Connections that the system establishes before they are accepted.
constexpr int kBacklog = asio::socket_base::max_listen_connections;

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(HttpServerOptions options, HttpHandler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        cors_(options_.cors_origins),
        proxies_(options_.trusted_proxies),
        clients_(std::make_shared<ClientRegistry>(options_.memory)),
        io_(options_.io_threads),
        work_(io_.get_executor()),
        handshakes_(options_.tls ? std::make_unique<TlsHandshakes>() : nullptr),
        acceptor_(asio::make_strand(io_)),
        retry_timer_(acceptor_.get_executor()),
        context_{options_,
                 handler_,
                 cors_,
                 proxies_,
                 *clients_,
                 std::make_shared<BodyMemory>(),
                 [this] { return leaving_.load(); },
                 [this] { return ended_.load(); },
                 handshakes_.get()} {}

  void start();
  void closeAfterAnswers() { leaving_ = true; }
  void stopAccepting(std::chrono::milliseconds arrivals);
  bool waitUntilClosed(std::chrono::milliseconds timeout);
  void stop();

  const HttpServerOptions& options() const { return options_; }
  uint16_t port() const { return port_; }
  const std::shared_ptr<ClientRegistry>& clients() const { return clients_; }
  size_t memoryUsed() const { return clients_->used(); }
  void freeUnusedMemory() { context_.bodies->freeUnused(std::chrono::steady_clock::now()); }

 private:
  void runThread() noexcept;
  void accept() noexcept;
  void retryAccept();
  void acceptLast();
  void adopt(ConnectionStream::Socket socket) noexcept;
  bool makePlace(HttpConnection::Peer& peer);
  Placement place(uint64_t client, bool unlimited, const ConnectionLimits& limits);
  void evictOne();
  void insert(ConnectionStream::Socket socket, HttpConnection::Peer peer);
  std::vector<std::shared_ptr<HttpConnection>> connections();

  HttpServerOptions options_;
  HttpHandler handler_;
  CorsPolicy cors_;
  TrustedProxies proxies_;
  std::shared_ptr<ClientRegistry> clients_;
  std::mutex mutex_;  // guards open_
  std::condition_variable closed_;
  std::list<std::weak_ptr<HttpConnection>> open_;
  asio::io_context io_;
  // Until stop(), the I/O threads run even while nothing is outstanding. A handler that another thread posts to a
  // strand counts as outstanding only some time after it holds back the strand's other handlers.
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  // Null without TLS. Its tasks hold connections, which keep this object alive: stop() ends them.
  std::unique_ptr<TlsHandshakes> handshakes_;
  // The handlers of acceptor_ and retry_timer_ run on one strand. While the I/O threads run, only this strand uses
  // them.
  Tcp::acceptor acceptor_;
  asio::steady_timer retry_timer_;
  HttpConnectionContext context_;
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
  std::atomic<bool> leaving_{false};  // heads of answers say that their connections end
  std::atomic<bool> ended_{false};    // no connection is accepted any more
  bool accepting_ = true;             // guarded by mutex_
  std::atomic<bool> stopped_{false};  // no more connections are kept; set while mutex_ is held
};

void HttpServer::Impl::start() {
  error_code error;
  Tcp::endpoint endpoint;
  const auto address = asio::ip::make_address(options_.host, error);
  if (!error) {
    endpoint = Tcp::endpoint(address, options_.port);
  } else {
    Tcp::resolver resolver(io_);
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port), Tcp::resolver::passive, error);
    if (error) {
      fail(ErrorCode::kInvalidArgument, "--host {}: {}; use an IP address or name of this machine", options_.host,
           error.message());
    }
    endpoint = found.begin()->endpoint();
  }
  const auto check = [&](const char* what) {
    if (!error) return;
    // kConflict, because the port may become free, or the address available, later.
    fail(ErrorCode::kConflict, "cannot {} {} port {}: {}; choose another --host or --port", what, options_.host,
         options_.port, error.message());
  };
  acceptor_.open(endpoint.protocol(), error);
  check("open a socket for");
  acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  check("bind to");
  acceptor_.listen(kBacklog, error);
  check("listen on");
  port_ = acceptor_.local_endpoint().port();
  accept();
  for (int i = 0; i < options_.io_threads; ++i) threads_.emplace_back([this] { runThread(); });
}

// An exception of a completion handler must not end the I/O thread.
void HttpServer::Impl::runThread() noexcept {
  while (true) {
    try {
      io_.run();
      return;
    } catch (const std::exception& e) {
      log::error("an I/O handler failed: {}", e.what());
    } catch (...) {
      log::error("an I/O handler failed");
    }
  }
}

// Accepting must never stop: if there is no memory for the next operation, it is tried again.
void HttpServer::Impl::accept() noexcept {
  while (acceptor_.is_open()) {
    try {
      acceptor_.async_accept(asio::make_strand(io_), [this](error_code error, ConnectionStream::Socket socket) {
        if (error && !acceptor_.is_open()) return;
        if (error) return retryAccept();
        adopt(std::move(socket));
        accept();
      });
      return;
    } catch (const std::exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

// Called when accept fails, for example for lack of descriptors: closes one connection, and waits instead of spinning.
void HttpServer::Impl::retryAccept() {
  try {
    evictOne();
    retry_timer_.expires_after(std::chrono::milliseconds(50));
    retry_timer_.async_wait([this](error_code cancelled) {
      if (!cancelled && acceptor_.is_open()) accept();
    });
  } catch (const std::exception&) {
    accept();
  }
}

void HttpServer::Impl::adopt(ConnectionStream::Socket socket) noexcept {
  try {
    error_code error;
    const auto endpoint = socket.remote_endpoint(error);
    if (error) return;
    HttpConnection::Peer peer{.address = endpoint.address().to_string(), .client = nullptr};
    peer.client = clients_->find(clientOfAddress(peer.address));
    if (!makePlace(peer)) {
      ++options_.counters->refused;
      return;
    }
    insert(std::move(socket), std::move(peer));
  } catch (const std::exception& e) {
    log::warn("a connection was refused: {}", e.what());
  }
}

// Takes the connections that the system has established but not handed over: closing the acceptor would reset them.
// Clients that connect meanwhile are not waited for, or a flood of them would keep the server from ending.
void HttpServer::Impl::acceptLast() {
  error_code error;
  acceptor_.non_blocking(true, error);
  for (int left = kBacklog; left > 0 && !error && !stopped_; --left) {
    ConnectionStream::Socket socket(asio::make_strand(io_));
    acceptor_.accept(socket, error);
    if (!error) adopt(std::move(socket));
  }
}

// Sets peer.reserved of a new connection. Returns false if the connection is refused.
bool HttpServer::Impl::makePlace(HttpConnection::Peer& peer) {
  const ConnectionLimits limits{.connections = options_.max_connections,
                                .per_client = options_.max_connections_per_client,
                                .reserve = options_.reserved_connections};
  const Placement placement = place(peer.client->id(), proxies_.trusts(peer.address), limits);
  peer.reserved = placement.reserved;
  return !placement.refused;
}

// Applies placeConnection() to the open connections, and evicts the one that it chooses.
Placement HttpServer::Impl::place(uint64_t client, bool unlimited, const ConnectionLimits& limits) {
  while (true) {
    const auto open = connections();
    std::vector<ConnectionView> views;
    views.reserve(open.size());
    for (const auto& connection : open) views.push_back(connection->view());
    const Placement placement = placeConnection(views, client, unlimited, limits);
    if (!placement.evicted) return placement;
    const size_t chosen = *placement.evicted;
    // A connection whose phase has changed since then may have begun a request, so another choice is made.
    if (!open[chosen]->evict(views[chosen].phase)) continue;
    ++options_.counters->evicted;
    return placement;
  }
}

// Leaves the reserve alone.
void HttpServer::Impl::evictOne() { place(0, true, {.connections = 0, .reserve = std::numeric_limits<size_t>::max()}); }

void HttpServer::Impl::insert(ConnectionStream::Socket socket, HttpConnection::Peer peer) {
  std::list<std::weak_ptr<HttpConnection>>::iterator place;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    place = open_.emplace(open_.end());
  }
  ++options_.counters->accepted;
  ++options_.counters->open;
  // A handler may hold its exchange, and thereby the connection, longer than the server lives. Each connection
  // therefore keeps this object alive.
  const auto forget = [self = shared_from_this(), place](HttpConnection* ended) {
    delete ended;
    --self->options_.counters->open;
    std::lock_guard lock(self->mutex_);
    self->open_.erase(place);
    self->closed_.notify_all();
  };
  HttpConnection* made = nullptr;
  try {
    made = new HttpConnection(ConnectionStream(std::move(socket), options_.tls.get()), std::move(peer), context_);
  } catch (...) {
    forget(nullptr);
    throw;
  }
  const std::shared_ptr<HttpConnection> connection(made, forget);
  {
    std::lock_guard lock(mutex_);
    *place = connection;
  }
  connection->start();
}

std::vector<std::shared_ptr<HttpConnection>> HttpServer::Impl::connections() {
  std::vector<std::shared_ptr<HttpConnection>> alive;
  std::lock_guard lock(mutex_);
  alive.reserve(open_.size());  // a failing push_back would release a connection, which locks mutex_ again
  for (const auto& entry : open_) {
    if (auto connection = entry.lock()) alive.push_back(std::move(connection));
  }
  return alive;
}

void HttpServer::Impl::stopAccepting(std::chrono::milliseconds arrivals) {
  leaving_ = true;
  ended_ = true;
  asio::post(acceptor_.get_executor(), [self = shared_from_this(), arrivals] {
    error_code ignored;
    if (self->acceptor_.is_open()) self->acceptLast();
    self->acceptor_.close(ignored);
    self->retry_timer_.cancel();
    for (const auto& connection : self->connections()) connection->endArrivals(arrivals);
    std::lock_guard lock(self->mutex_);
    self->accepting_ = false;
    self->closed_.notify_all();
  });
  // Afterwards waitUntilClosed() waits for every connection there will be.
  std::unique_lock lock(mutex_);
  closed_.wait_for(lock, std::chrono::seconds(1), [this] { return !accepting_ || threads_.empty(); });
}

bool HttpServer::Impl::waitUntilClosed(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return closed_.wait_for(lock, timeout, [this] { return !accepting_ && open_.empty(); });
}

void HttpServer::Impl::stop() {
  if (threads_.empty()) return;
  stopAccepting(kLastArrivals);
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  // Before the connections are closed: those whose handshakes wait could not end sooner. No step is computed
  // afterwards, on whatever thread the remaining handlers run.
  if (handshakes_) handshakes_->stop();
  for (const auto& connection : connections()) connection->abort();
  waitUntilClosed(std::chrono::seconds(2));
  io_.stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  // Runs the handlers of aborted operations, which releases the objects that they hold.
  io_.restart();
  io_.poll();
}

HttpServer::HttpServer(HttpServerOptions options, HttpHandler handler)
    : impl_(std::make_shared<Impl>(std::move(options), std::move(handler))) {}
HttpServer::~HttpServer() { stop(); }
void HttpServer::start() { impl_->start(); }
uint16_t HttpServer::port() const { return impl_->port(); }
std::string HttpServer::url() const {
  const std::string& host = impl_->options().host;
  const bool v6 = host.find(':') != std::string::npos;
  const char* scheme = impl_->options().tls ? "https" : "http";
  return fmt::format("{}://{}{}{}:{}", scheme, v6 ? "[" : "", host, v6 ? "]" : "", port());
}
std::shared_ptr<ClientRegistry> HttpServer::clients() const { return impl_->clients(); }
size_t HttpServer::memoryUsed() const { return impl_->memoryUsed(); }
void HttpServer::freeUnusedMemory() { impl_->freeUnusedMemory(); }
void HttpServer::closeAfterAnswers() { impl_->closeAfterAnswers(); }
void HttpServer::stopAccepting(std::chrono::milliseconds arrivals) { impl_->stopAccepting(arrivals); }
bool HttpServer::waitUntilClosed(std::chrono::milliseconds timeout) { return impl_->waitUntilClosed(timeout); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace chorus::server
