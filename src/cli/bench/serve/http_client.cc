#include "cli/bench/serve/http_client.h"

#include <array>
#include <boost/algorithm/string/case_conv.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"

namespace chorus {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

class HttpClient::Impl {
 public:
  Impl(const HttpTarget& target, std::chrono::milliseconds timeout, const std::string& ca_file);
  void stop();

  const HttpTarget target;
  const std::chrono::milliseconds timeout;
  asio::io_context io{1};
  std::optional<asio::ssl::context> tls;
  Tcp::resolver::results_type addresses;
  std::set<std::shared_ptr<Call>> calls;  // used only by the client's thread
  bool stopped = false;                   // used only by the client's thread
  std::string host_header;

 private:
  asio::executor_work_guard<asio::io_context::executor_type> work_{io.get_executor()};
  std::thread thread_;
};

namespace {

ResponseHead headOf(const http::response_header<>& header) {
  ResponseHead head{.status = static_cast<int>(header.result_int())};
  for (const auto& field : header) {
    head.headers.emplace_back(boost::algorithm::to_lower_copy(std::string(field.name_string())), field.value());
  }
  return head;
}

}  // namespace

// A request in progress. All functions run on the client's thread.
class HttpClient::Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Impl& client, http::request<http::string_body> request, std::shared_ptr<CallHandler> handler)
      : client_(client),
        socket_(client.io),
        timer_(client.io),
        request_(std::move(request)),
        handler_(std::move(handler)) {
    parser_.body_limit(boost::none);
  }

  void startAfter(std::chrono::milliseconds delay) {
    if (client_.stopped) {
      handler_->onEnd(CallEnd::kStopped, "");
      return;
    }
    client_.calls.insert(shared_from_this());
    if (delay.count() <= 0) return start();
    timer_.expires_after(delay);
    timer_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled && !self->done_) self->start();
    });
  }

  void finish(CallEnd end, std::string_view reason) {
    if (done_) return;
    done_ = true;
    error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    handler_->onEnd(end, reason);
    client_.calls.erase(shared_from_this());
  }

 private:
  void start() {
    timer_.expires_after(client_.timeout);
    timer_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled) self->finish(CallEnd::kTimedOut, "");
    });
    asio::async_connect(socket_, client_.addresses,
                        [self = shared_from_this()](error_code error, const Tcp::endpoint&) {
                          if (self->done_) return;
                          if (error) return self->finish(CallEnd::kRefused, error.message());
                          error_code ignored;
                          self->socket_.set_option(Tcp::no_delay(true), ignored);
                          if (self->client_.tls) return self->handshake();
                          self->write();
                        });
  }

  void handshake() {
    tls_.emplace(socket_, *client_.tls);
    SSL* const session = tls_->native_handle();
    const char* const host = client_.target.host.c_str();
    // An address is no server name (RFC 6066, section 3).
    const bool named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host) == 1 ||
                       (SSL_set1_host(session, host) == 1 && SSL_set_tlsext_host_name(session, host) == 1);
    if (!named) return finish(CallEnd::kRefused, "TLS: no valid host name");
    tls_->async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](error_code error) {
      if (self->done_) return;
      if (error) return self->finish(CallEnd::kRefused, self->handshakeFault(error));
      self->write();
    });
  }

  std::string handshakeFault(error_code error) {
    const long verified = SSL_get_verify_result(tls_->native_handle());
    if (verified == X509_V_OK) return "TLS: " + error.message();
    return std::string("TLS: the server's certificate is not accepted: ") + X509_verify_cert_error_string(verified);
  }

  // Calls `use` with the stream that carries HTTP.
  template <typename Use>
  void withStream(Use use) {
    if (tls_) {
      use(*tls_);
    } else {
      use(socket_);
    }
  }

  void write() {
    withStream([this](auto& stream) {
      http::async_write(stream, request_, [self = shared_from_this()](error_code error, size_t) {
        if (self->done_) return;
        // A server may refuse and close while the request is still being sent; its response may be readable all the
        // same.
        if (error && error != asio::error::broken_pipe && error != asio::error::connection_reset) {
          return self->finish(CallEnd::kDisconnected, error.message());
        }
        self->readHeader();
      });
    });
  }

  void readHeader() {
    withStream([this](auto& stream) {
      http::async_read_header(stream, input_, parser_, [self = shared_from_this()](error_code error, size_t) {
        if (self->done_) return;
        if (error) return self->fail(error);
        self->handler_->onHead(headOf(self->parser_.get().base()));
        self->readBody();
      });
    });
  }

  void readBody() {
    if (parser_.is_done()) return finish(CallEnd::kComplete, "");
    parser_.get().body().data = piece_.data();
    parser_.get().body().size = piece_.size();
    withStream([this](auto& stream) {
      http::async_read_some(stream, input_, parser_, [self = shared_from_this()](error_code error, size_t) {
        if (self->done_) return;
        const size_t bytes = self->piece_.size() - self->parser_.get().body().size;
        if (bytes > 0) self->handler_->onBody({self->piece_.data(), bytes});
        if (error && error != http::error::need_buffer) return self->fail(error);
        self->readBody();
      });
    });
  }

  void fail(error_code error) {
    const bool no_http = error.category() == http::make_error_code(http::error::bad_version).category() &&
                         error != http::error::end_of_stream && error != http::error::partial_message;
    finish(no_http ? CallEnd::kBadResponse : CallEnd::kDisconnected, error.message());
  }

  Impl& client_;
  Tcp::socket socket_;
  std::optional<asio::ssl::stream<Tcp::socket&>> tls_;
  asio::steady_timer timer_;
  http::request<http::string_body> request_;
  std::shared_ptr<CallHandler> handler_;
  http::response_parser<http::buffer_body> parser_;
  boost::beast::flat_buffer input_;
  std::array<char, size_t{16} << 10> piece_;
  bool done_ = false;
};

namespace {

// TLS 1.2 or newer, with a server whose certificate comes from the authorities.
asio::ssl::context tlsContext(const std::string& ca_file) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  context.set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  if (ca_file.empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.load_verify_file(ca_file, error);
  }
  if (error) {
    fail(ErrorCode::kInvalidArgument, "--ca_cert {}: no certificates in PEM form ({})", ca_file, error.message());
  }
  return context;
}

}  // namespace

HttpClient::Impl::Impl(const HttpTarget& target_in, std::chrono::milliseconds timeout_in, const std::string& ca_file)
    : target(target_in), timeout(timeout_in) {
  if (target.tls) tls.emplace(tlsContext(ca_file));
  error_code error;
  Tcp::resolver resolver(io);
  addresses = resolver.resolve(target.host, std::to_string(target.port), error);
  if (error) {
    chorus::fail(ErrorCode::kInvalidArgument, "--url: host {} has no address: {}", target.host, error.message());
  }
  const bool v6 = target.host.find(':') != std::string::npos;
  host_header = fmt::format("{}{}{}:{}", v6 ? "[" : "", target.host, v6 ? "]" : "", target.port);
  thread_ = std::thread([this] { io.run(); });
}

void HttpClient::Impl::stop() {
  if (!thread_.joinable()) return;
  asio::post(io, [this] {
    stopped = true;
    const auto running = calls;
    for (const auto& call : running) call->finish(CallEnd::kStopped, "");
  });
  work_.reset();
  thread_.join();
}

HttpClient::HttpClient(const HttpTarget& target, std::chrono::milliseconds timeout, const std::string& ca_file)
    : impl_(std::make_unique<Impl>(target, timeout, ca_file)) {}
HttpClient::~HttpClient() { stop(); }
void HttpClient::stop() { impl_->stop(); }

void HttpClient::send(std::string_view method, std::string_view path, const HttpHeaders& headers, std::string body,
                      std::shared_ptr<CallHandler> handler, std::chrono::milliseconds delay) {
  http::request<http::string_body> request(method == "GET" ? http::verb::get : http::verb::post,
                                           impl_->target.prefix + std::string(path), 11);
  request.set(http::field::host, impl_->host_header);
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.body() = std::move(body);
  request.prepare_payload();
  auto call = std::make_shared<Call>(*impl_, std::move(request), std::move(handler));
  asio::post(impl_->io, [call = std::move(call), delay] { call->startAfter(delay); });
}

namespace {
class Fetch : public CallHandler {
 public:
  void onHead(const ResponseHead& head) override { status_ = head.status; }
  void onBody(std::string_view bytes) override {
    constexpr size_t kMostBytes = size_t{64} << 20;
    if (body_.size() + bytes.size() <= kMostBytes) body_ += bytes;
  }
  void onEnd(CallEnd end, std::string_view reason) override {
    const bool whole = end == CallEnd::kComplete && status_ == 200;
    done_.set_value(whole ? std::nullopt
                          : std::make_optional(status_ == 0 ? std::string(reason) : fmt::format("status {}", status_)));
  }
  std::string take(const std::string& path) {
    if (const auto problem = done_.get_future().get()) {
      fail(ErrorCode::kConflict, "--url: {} was not answered: {}", path, problem->empty() ? "time is up" : *problem);
    }
    return std::move(body_);
  }

 private:
  int status_ = 0;
  std::string body_;
  std::promise<std::optional<std::string>> done_;
};
}  // namespace

std::string fetchBody(HttpClient& client, const std::string& path, const HttpHeaders& headers) {
  const auto fetch = std::make_shared<Fetch>();
  client.send("GET", path, headers, "", fetch);
  return fetch->take(path);
}

}  // namespace chorus
