#include "server/http/http.h"

#include <atomic>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <list>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http/http_connection.h"

namespace chorus::server {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

class HttpServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(HttpServerOptions options, HttpHandler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        io_(options_.ioThreads),
        acceptor_(asio::make_strand(io_)),
        retryTimer_(acceptor_.get_executor()),
        context_{options_, handler_, [this] { return draining_.load(); }} {}

  void start();
  void stopAccepting();
  bool waitUntilClosed(std::chrono::milliseconds timeout);
  void stop();

  const HttpServerOptions& options() const { return options_; }
  uint16_t port() const { return port_; }

 private:
  void accept();
  void adopt(HttpConnection::Socket socket);
  std::vector<std::shared_ptr<HttpConnection>> connections();

  HttpServerOptions options_;
  HttpHandler handler_;
  std::mutex mutex_;  // guards open_
  std::condition_variable closed_;
  std::list<std::weak_ptr<HttpConnection>> open_;
  asio::io_context io_;
  // Both on one strand, touched by nothing outside it once the threads run.
  Tcp::acceptor acceptor_;
  asio::steady_timer retryTimer_;
  HttpConnectionContext context_;
  uint16_t port_ = 0;
  std::vector<std::thread> threads_;
  std::atomic<bool> draining_{false};
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
      fail(ErrorCode::kInvalidArgument, "--host {}: {}; give an address of this machine", options_.host,
           error.message());
    }
    endpoint = found.begin()->endpoint();
  }
  const auto check = [&](const char* what) {
    if (!error) return;
    fail(ErrorCode::kInvalidArgument, "cannot {} {} port {}: {}; choose another --host or --port", what, options_.host,
         options_.port, error.message());
  };
  acceptor_.open(endpoint.protocol(), error);
  check("open a socket for");
  acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  acceptor_.bind(endpoint, error);
  check("bind to");
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
  port_ = acceptor_.local_endpoint().port();
  accept();
  for (int i = 0; i < options_.ioThreads; ++i) threads_.emplace_back([this] { io_.run(); });
}

void HttpServer::Impl::accept() {
  acceptor_.async_accept(asio::make_strand(io_), [this](error_code error, HttpConnection::Socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      // Out of descriptors: wait for connections to close instead of spinning.
      retryTimer_.expires_after(std::chrono::milliseconds(100));
      retryTimer_.async_wait([this](error_code cancelled) {
        if (!cancelled && acceptor_.is_open()) accept();
      });
      return;
    }
    adopt(std::move(socket));
    accept();
  });
}

void HttpServer::Impl::adopt(HttpConnection::Socket socket) {
  std::shared_ptr<HttpConnection> connection;
  {
    std::lock_guard lock(mutex_);
    if (draining_ || open_.size() >= options_.maxConnections) return;
    const auto place = open_.emplace(open_.end());
    auto owned = std::make_unique<HttpConnection>(std::move(socket), context_);
    // A handler may hold its exchange, and so the connection, longer than the server lives: each keeps the other.
    const auto forget = [self = shared_from_this(), place](HttpConnection* ended) {
      delete ended;
      std::lock_guard relock(self->mutex_);
      self->open_.erase(place);
      self->closed_.notify_all();
    };
    connection = std::shared_ptr<HttpConnection>(owned.release(), forget);
    *place = connection;
  }
  connection->start();
}

std::vector<std::shared_ptr<HttpConnection>> HttpServer::Impl::connections() {
  std::vector<std::shared_ptr<HttpConnection>> alive;
  std::lock_guard lock(mutex_);
  for (const auto& weak : open_) {
    if (auto connection = weak.lock()) alive.push_back(std::move(connection));
  }
  return alive;
}

void HttpServer::Impl::stopAccepting() {
  {
    std::lock_guard lock(mutex_);
    draining_ = true;
  }
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->acceptor_.close(ignored);
    self->retryTimer_.cancel();
  });
  for (const auto& connection : connections()) connection->closeIfIdle();
}

bool HttpServer::Impl::waitUntilClosed(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return closed_.wait_for(lock, timeout, [this] { return open_.empty(); });
}

void HttpServer::Impl::stop() {
  if (threads_.empty()) return;
  stopAccepting();
  for (const auto& connection : connections()) connection->abort();
  waitUntilClosed(std::chrono::seconds(2));
  io_.stop();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
  // Operations that were cut off end here, which releases what they hold.
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
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port());
}
void HttpServer::stopAccepting() { impl_->stopAccepting(); }
bool HttpServer::waitUntilClosed(std::chrono::milliseconds timeout) { return impl_->waitUntilClosed(timeout); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace chorus::server
