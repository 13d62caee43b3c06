#include "server/http/http_connection.h"

#include <boost/asio/post.hpp>

#include <algorithm>

#include "server/errors.h"
#include "server/http/http_exchange.h"
#include "server/http/http_wire.h"

namespace chorus::server {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kReservedTimeout{2000};
// How long a connection without a request is kept when the server stops: a request may be on its way.
constexpr std::chrono::milliseconds kLastRequest{200};

}  // namespace

HttpConnection::HttpConnection(ConnectionStream stream, Peer peer, const HttpConnectionContext& context)
    : context_(context),
      stream_(std::move(stream)),
      peer_(std::move(peer)),
      timer_(stream_.executor()),
      room_timer_(stream_.executor()),
      input_charge_(peer_.client),
      pace_(context.options.write_timeout, context.options.min_read_rate) {}

void HttpConnection::failNow(std::exception_ptr error) noexcept {
  if (state_ == State::kClosed) return;
  try {
    if (state_ != State::kReading) return close();
    try {
      std::rethrow_exception(error);
    } catch (...) {
      reject(currentApiError());
    }
  } catch (...) {
    close();
  }
}

void HttpConnection::start() {
  asio::post(stream_.executor(), [self = shared_from_this()] {
    self->guarded([&] {
      self->stream_.begin();
      self->waitForDeadline();
      if (self->stream_.hasTls()) return self->beginTls();
      self->expectRequest();
    });
  });
}

// Until the handshake is done, the connection counts as one that has not sent a byte.
void HttpConnection::beginTls() {
  handshaking_ = true;
  setDeadline(peer_.reserved ? kReservedTimeout : context_.options.tls_timeout);
  stream_.handshake(*context_.handshakes, peer_.client->id(), [self = shared_from_this()](error_code error, size_t) {
    self->guarded([&] { self->onHandshake(error); });
  });
}

void HttpConnection::onHandshake(error_code error) {
  if (state_ == State::kClosed) return;
  handshaking_ = false;
  if (!error) return expectRequest();
  ++context_.options.counters->tls_failures;
  if (stream_.dropTls()) return reject(400, "This port speaks TLS; use https:// in the URL.");
  // The client can read OpenSSL's alert before the connection is closed.
  linger();
}

void HttpConnection::endArrivals(std::chrono::milliseconds within) {
  asio::post(stream_.executor(), [self = shared_from_this(), within] {
    self->guarded([&] {
      if (self->state_ != State::kReading) return;
      const auto now = steady_clock::now();
      const bool silent = !self->decoder_ && self->input_.empty() && !self->handshaking_;
      self->arrivals_end_ = std::min(self->arrivals_end_, now + within);
      self->deadline_ = std::min(self->deadline_, now + (silent ? std::min(kLastRequest, within) : within));
      self->wakeForDeadline();
    });
  });
}

// Needs no memory, so it cannot fail after the connection has left the count of open connections.
bool HttpConnection::evict(ConnectionPhase seen) noexcept {
  if (!phase_.compare_exchange_strong(seen, ConnectionPhase::kEvicted)) return false;
  breakOff();
  // A step of a handshake that waits for its turn would notice it only then, and hold the connection until then.
  try {
    if (context_.handshakes != nullptr) abort();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
  return true;
}

void HttpConnection::abort() {
  asio::post(stream_.executor(), [self = shared_from_this()] { self->close(); });
}

ConnectionView HttpConnection::view() const {
  return {.client = peer_.client->id(), .phase = phase_, .since = phase_since_, .reserved = peer_.reserved};
}

bool HttpConnection::setPhase(ConnectionPhase phase) {
  ConnectionPhase before = phase_;
  do {
    if (before == ConnectionPhase::kEvicted) return false;
    // A client that sends a request byte by byte does not begin a new phase with each of them.
    if (before == phase) return true;
  } while (!phase_.compare_exchange_weak(before, phase));
  phase_since_ = steady_clock::now().time_since_epoch().count();
  return true;
}

void HttpConnection::expectRequest() {
  request_ = HttpRequest();
  scanner_.emplace(context_.options.max_header_bytes);
  decoder_.reset();
  head_started_ = !input_.empty();
  state_ = State::kReading;
  if (serial_ > 0) setPhase(ConnectionPhase::kIdle);
  expectInput(peer_.reserved  ? kReservedTimeout
              : head_started_ ? context_.options.header_timeout
                              : context_.options.idle_timeout);
  parseBuffered();
}

void HttpConnection::rejectMemory(MemoryAnswer answer) { reject(ApiError::outOfMemory(answer)); }

void HttpConnection::reject(int status, std::string_view message) {
  reject(ApiError(status, std::string(message), "invalid_request_error", std::nullopt, std::nullopt));
}

// Answers without calling the handler and closes the connection, because the bytes that follow cannot be trusted.
void HttpConnection::reject(const ApiError& error) {
  request_keeps_alive_ = false;
  state_ = State::kHandling;
  setPhase(ConnectionPhase::kLingering);
  clearDeadline();
  const std::string id = request_.id.empty() ? randomId("req-") : request_.id;
  const ErrorForm form = errorFormFor(request_.path, id);
  const HttpResponse response = error.response(form);
  reportUnrouted(id, request_.method, request_.client.get(), response);
  request_ = HttpRequest();
  HttpHeaders headers = response.headers;
  for (const HttpHeaders& more : {cors_headers_, idHeaders(form)})
    headers.insert(headers.end(), more.begin(), more.end());
  const std::string head = responseHead(response.status, response.content_type,
                                        static_cast<int64_t>(response.body.size()), false, id, headers);
  {
    std::lock_guard lock(mutex_);
    ++serial_;
    answered_ = true;
    pending_ += head;
    pending_ += response.body;
  }
  flush();
}

void HttpConnection::reportUnrouted(std::string_view id, std::string_view method, const Client* client,
                                    const HttpResponse& response) const {
  if (!context_.options.on_unrouted) return;
  if (client == nullptr) client = peer_.client.get();
  context_.options.on_unrouted({.id = id,
                                .method = method,
                                .client = client != nullptr ? std::string_view(client->name()) : std::string_view(),
                                .status = response.status,
                                .bytes = response.body.size()});
}

void HttpConnection::setDeadline(std::chrono::milliseconds delay) {
  deadline_ = steady_clock::now() + delay;
  wakeForDeadline();
}

void HttpConnection::expectInput(std::chrono::milliseconds delay) {
  deadline_ = std::min(steady_clock::now() + delay, arrivals_end_);
  wakeForDeadline();
}

void HttpConnection::clearDeadline() { deadline_ = steady_clock::time_point::max(); }

void HttpConnection::setWriteDeadline(steady_clock::time_point deadline) {
  write_deadline_ = deadline;
  wakeForDeadline();
}

// A pending wait that ends earlier than the next deadline is kept: onDeadline() then waits again.
void HttpConnection::wakeForDeadline() {
  if (nextDeadline() < timer_.expiry()) timer_.cancel();
}

void HttpConnection::waitForDeadline() {
  // Bounded, so that a pending wait does not keep a closed connection in memory for long.
  constexpr std::chrono::minutes kLongestWait{10};
  timer_.expires_at(std::min(nextDeadline(), steady_clock::now() + kLongestWait));
  timer_.async_wait([self = shared_from_this()](error_code) { self->guarded([&] { self->onDeadline(); }); });
}

void HttpConnection::onDeadline() {
  if (state_ == State::kClosed) return;
  const auto now = steady_clock::now();
  if (now < nextDeadline()) return waitForDeadline();
  const bool mid_request = state_ == State::kReading && (decoder_ || !input_.empty());
  if (!mid_request && state_ == State::kReading && now < std::min(arrivals_end_, write_deadline_) &&
      arrivals_end_ != steady_clock::time_point::max() && stream_.hasInput()) {
    // The server stops, and a request has come in time that a busy machine has not read yet.
    deadline_ = arrivals_end_;
    return waitForDeadline();
  }
  if (!mid_request || now >= write_deadline_) {
    if (behind_) stream_.resetOnClose();
    return close();
  }
  if (now >= arrivals_end_) {
    reject(ApiError::unavailable("The server is shutting down."));
  } else {
    reject(408, "The request did not arrive in time.");
  }
  waitForDeadline();
}

}  // namespace chorus::server
