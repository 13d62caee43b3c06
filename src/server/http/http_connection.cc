#include "server/http/http_connection.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>

#include "server/errors.h"
#include "server/http/http_wire.h"

namespace chorus::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kPipelineBytes = size_t{64} << 10;
constexpr size_t kLingerBytes = size_t{16} << 20;
constexpr std::chrono::milliseconds kLingerTimeout{2000};

std::string toString(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string lowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

class HttpConnection::Exchange : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, uint64_t serial, std::string id, bool headOnly, bool chunked)
      : connection_(std::move(connection)),
        serial_(serial),
        id_(std::move(id)),
        headOnly_(headOnly),
        chunked_(chunked) {}

  ~Exchange() override {
    if (stage_ == Stage::kOpen) {
      respond(ApiError::internal("The server had an error while processing the request.").response());
    } else if (stage_ == Stage::kStreaming) {
      connection_->abort();
    }
  }

  void respond(HttpResponse response) override {
    if (stage_ != Stage::kOpen) return;
    stage_ = Stage::kDone;
    std::string bytes = responseHead(response.status, response.contentType, static_cast<int64_t>(response.body.size()),
                                     connection_->keepAlive(), id_, response.headers);
    if (!headOnly_) bytes += response.body;
    bool alive = true;
    connection_->send(serial_, std::move(bytes), true, false, alive);
  }

  void beginStream(int status, std::string_view contentType) override {
    if (stage_ != Stage::kOpen) return;
    stage_ = Stage::kStreaming;
    bool alive = true;
    const int64_t length = chunked_ ? kChunkedLength : kLengthUntilClose;
    connection_->send(serial_, responseHead(status, contentType, length, connection_->keepAlive(), id_, {}), false,
                      true, alive);
  }

  bool write(std::string_view bytes) override {
    if (stage_ != Stage::kStreaming) return false;
    bool alive = true;
    std::string chunk;
    if (!bytes.empty() && !headOnly_) {
      if (chunked_)
        appendChunk(chunk, bytes);
      else
        chunk = bytes;
    }
    connection_->send(serial_, std::move(chunk), false, true, alive);
    return alive;
  }

  void endStream() override {
    if (stage_ != Stage::kStreaming) return;
    stage_ = Stage::kDone;
    bool alive = true;
    connection_->send(serial_, std::string(headOnly_ || !chunked_ ? std::string_view() : kLastChunk), true, false,
                      alive);
  }

  void onAbort(std::function<void()> callback) override { connection_->setAbortCallback(serial_, std::move(callback)); }

 private:
  enum class Stage { kOpen, kStreaming, kDone };
  std::shared_ptr<HttpConnection> connection_;
  uint64_t serial_;
  std::string id_;
  bool headOnly_;
  bool chunked_;
  Stage stage_ = Stage::kOpen;
};

HttpConnection::HttpConnection(Socket socket, const HttpConnectionContext& context)
    : context_(context), socket_(std::move(socket)), timer_(socket_.get_executor()) {}

void HttpConnection::start() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    self->waitForDeadline();
    self->expectRequest();
  });
}

void HttpConnection::closeIfIdle() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->state_ == State::kReading && !self->headerSeen_ && self->input_.size() == 0) self->close();
  });
}

void HttpConnection::abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

void HttpConnection::expectRequest() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(context_.options.maxHeaderBytes));
  parser_->body_limit(context_.options.maxBodyBytes);
  state_ = State::kReading;
  headerSeen_ = false;
  setDeadline(input_.size() > 0 ? context_.options.headerTimeout : context_.options.idleTimeout);
  parseBuffered();
}

void HttpConnection::readMore() {
  if (reading_ || state_ == State::kClosed) return;
  if (state_ == State::kHandling && input_.size() >= kPipelineBytes) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(readBuffer_),
                          [self = shared_from_this()](error_code error, size_t bytes) { self->onRead(error, bytes); });
}

void HttpConnection::onRead(error_code error, size_t bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error) return close();
  if (state_ == State::kLingering) {
    lingered_ += bytes;
    if (lingered_ > kLingerBytes) return close();
    return readMore();
  }
  const bool firstBytes = state_ == State::kReading && !headerSeen_ && input_.size() == 0;
  asio::buffer_copy(input_.prepare(bytes), asio::buffer(readBuffer_, bytes));
  input_.commit(bytes);
  if (state_ == State::kHandling) return readMore();
  if (firstBytes) setDeadline(context_.options.headerTimeout);
  parseBuffered();
}

void HttpConnection::parseBuffered() {
  while (state_ == State::kReading && input_.size() > 0) {
    error_code error;
    const size_t used = parser_->put(input_.data(), error);
    input_.consume(used);
    const bool needsMore = error == http::error::need_more;
    if (error && !needsMore) return rejectParse(error);
    if (parser_->is_header_done() && !headerSeen_) {
      headerSeen_ = true;
      if (!acceptHeader()) return;
      parser_->eager(true);
    }
    if (parser_->is_done()) return dispatch();
    if (needsMore && used == 0) {
      // Neither a header nor a chunk's own line needs this much.
      if (input_.size() > context_.options.maxHeaderBytes + kPipelineBytes) {
        return reject(400, "The request is not well-formed HTTP.");
      }
      break;
    }
  }
  readMore();
}

// Checks what can be refused before the body arrives. False when the request was rejected.
bool HttpConnection::acceptHeader() {
  const auto& message = parser_->get();
  if (message.target().size() > context_.options.maxTargetBytes) {
    reject(414, "The request's URL is too long.");
    return false;
  }
  const std::string coding = lowerCase(toString(message[http::field::transfer_encoding]));
  if (!coding.empty() && coding != "chunked") {
    reject(501, "Only the transfer encoding 'chunked' is supported.");
    return false;
  }
  const std::string expectation = lowerCase(toString(message[http::field::expect]));
  if (!expectation.empty() && expectation != "100-continue") {
    reject(417, "Only the expectation '100-continue' is supported.");
    return false;
  }
  if (const auto length = parser_->content_length(); length && *length > context_.options.maxBodyBytes) {
    reject(413, "The request's body is too large.");
    return false;
  }
  setDeadline(context_.options.bodyTimeout);
  if (!expectation.empty() && !parser_->is_done() && input_.size() == 0) {
    {
      std::lock_guard lock(mutex_);
      pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
    }
    flush();
  }
  return true;
}

void HttpConnection::rejectParse(error_code error) {
  if (error == http::error::header_limit) return reject(431, "The request's header is too large.");
  if (error == http::error::body_limit) return reject(413, "The request's body is too large.");
  if (error == http::error::bad_version) return reject(505, "Only HTTP/1.0 and HTTP/1.1 are supported.");
  reject(400, "The request is not well-formed HTTP.");
}

// Answers without a handler and closes: what follows in the stream can't be trusted.
void HttpConnection::reject(int status, std::string message) {
  requestKeepsAlive_ = false;
  state_ = State::kHandling;
  clearDeadline();
  std::lock_guard lock(mutex_);
  ++serial_;
  const std::string body =
      ApiError(status, std::move(message), "invalid_request_error", std::nullopt, std::nullopt).body();
  pending_ += responseHead(status, "application/json", static_cast<int64_t>(body.size()), false, randomId("req-"), {});
  pending_ += body;
  answered_ = true;
  flushPosted_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->flush(); });
}

void HttpConnection::dispatch() {
  auto message = parser_->release();
  HttpRequest request;
  request.method = toString(message.method_string());
  std::string target = toString(message.target());
  const size_t question = target.find('?');
  if (question != std::string::npos) {
    request.query = target.substr(question + 1);
    target.resize(question);
  }
  request.path = std::move(target);
  for (const auto& field : message) {
    request.headers.emplace_back(lowerCase(toString(field.name_string())), toString(field.value()));
  }
  request.body = std::move(message.body());
  const std::string_view sentId = request.header("x-request-id");
  request.id = isWellFormedRequestId(sentId) ? std::string(sentId) : randomId("req-");

  requestKeepsAlive_ = message.keep_alive() && message.version() >= 11;
  state_ = State::kHandling;
  clearDeadline();
  uint64_t serial;
  {
    std::lock_guard lock(mutex_);
    serial = ++serial_;
    answered_ = false;
  }
  // A client of HTTP/1.0 knows no chunks: its stream ends with the connection.
  auto exchange = std::make_shared<Exchange>(shared_from_this(), serial, request.id, request.method == "HEAD",
                                             message.version() >= 11);
  readMore();
  context_.handler(std::move(request), std::move(exchange));
}

bool HttpConnection::keepAlive() const { return requestKeepsAlive_ && !context_.draining(); }

void HttpConnection::send(uint64_t serial, std::string bytes, bool last, bool bounded, bool& alive) {
  std::lock_guard lock(mutex_);
  alive = open_ && serial == serial_ && !answered_;
  if (!alive) return;
  if (bounded && pending_.size() + bytes.size() > context_.options.maxStreamBacklog) {
    alive = false;
    open_ = false;
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
    return;
  }
  pending_ += bytes;
  answered_ = last;
  if (flushPosted_) return;
  flushPosted_ = true;
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->flush(); });
}

void HttpConnection::setAbortCallback(uint64_t serial, std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (serial != serial_ || answered_) return;
    if (open_) {
      abortCallback_ = std::move(callback);
      return;
    }
  }
  callback();
}

void HttpConnection::flush() {
  if (state_ == State::kClosed) return;
  bool complete;
  {
    std::lock_guard lock(mutex_);
    flushPosted_ = false;
    if (!writing_.empty()) return;
    writing_.swap(pending_);
    complete = answered_;
  }
  written_ = 0;
  if (!writing_.empty()) return writeSome();
  if (complete && state_ == State::kHandling) finishResponse();
}

void HttpConnection::writeSome() {
  if (state_ == State::kHandling) setDeadline(context_.options.writeTimeout);
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           [self = shared_from_this()](error_code error, size_t bytes) {
                             if (self->state_ == State::kClosed) return;
                             if (error) return self->close();
                             self->written_ += bytes;
                             if (self->written_ < self->writing_.size()) return self->writeSome();
                             self->writing_.clear();
                             if (self->state_ == State::kHandling) self->clearDeadline();
                             self->flush();
                           });
}

void HttpConnection::finishResponse() {
  std::function<void()> dropped;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(abortCallback_);
  }
  if (!keepAlive()) return linger();
  expectRequest();
}

void HttpConnection::linger() {
  state_ = State::kLingering;
  setDeadline(kLingerTimeout);
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) return close();
  input_.consume(input_.size());
  readMore();
}

void HttpConnection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    open_ = false;
    callback.swap(abortCallback_);
    if (answered_ && pending_.empty() && writing_.empty()) callback = nullptr;
    pending_.clear();
  }
  if (callback) callback();
}

void HttpConnection::setDeadline(std::chrono::milliseconds delay) {
  const auto deadline = std::chrono::steady_clock::now() + delay;
  const bool sooner = deadline < deadline_;
  deadline_ = deadline;
  // The pending wait is left alone when it fires earlier anyway: it re-arms itself.
  if (sooner) timer_.cancel();
}

void HttpConnection::clearDeadline() { deadline_ = std::chrono::steady_clock::time_point::max(); }

void HttpConnection::waitForDeadline() {
  // Bounded, so that a wait never outlives a closed connection for long.
  constexpr std::chrono::minutes kLongestWait{10};
  const auto limit = std::chrono::steady_clock::now() + kLongestWait;
  timer_.expires_at(std::min(deadline_, limit));
  timer_.async_wait([self = shared_from_this()](error_code) { self->onDeadline(); });
}

void HttpConnection::onDeadline() {
  if (state_ == State::kClosed) return;
  if (std::chrono::steady_clock::now() < deadline_) return waitForDeadline();
  const bool midRequest = state_ == State::kReading && (headerSeen_ || input_.size() > 0);
  if (!midRequest) return close();
  reject(408, "The request did not arrive in time.");
  waitForDeadline();
}

}  // namespace chorus::server
