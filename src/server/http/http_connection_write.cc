#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "base/free_text.h"
#include "server/errors.h"
#include "server/http/http_connection.h"
#include "server/http/http_exchange.h"
#include "server/http/http_wire.h"

namespace chorus::server {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kLingerTimeout{2000};

}  // namespace

HttpConnection::Exchange::Exchange(std::shared_ptr<HttpConnection> connection, uint64_t serial, ErrorForm form,
                                   bool head_only, bool chunked)
    : connection_(std::move(connection)),
      serial_(serial),
      form_(std::move(form)),
      head_only_(head_only),
      chunked_(chunked) {}

HttpConnection::Exchange::~Exchange() {
  if (stage_ == Stage::kDone) return;
  if (stage_ == Stage::kStreaming) {
    connection_->breakOff();
    return;
  }
  try {
    respond(ApiError::internal("The server had an error while processing the request.").response(form_));
  } catch (...) {
    connection_->breakOff();
  }
}

void HttpConnection::Exchange::addHeaders(const HttpHeaders& headers) {
  if (stage_ != Stage::kOpen) return;
  connection_->addHeaders(serial_, headers);
}

void HttpConnection::Exchange::respond(HttpResponse response) {
  if (stage_ != Stage::kOpen) return;
  stage_ = Stage::kDone;
  connection_->respond(serial_, form_, head_only_, std::move(response));
}

HttpResponse HttpConnection::Exchange::charged(HttpResponse response) {
  if (stage_ != Stage::kOpen) return response;
  return connection_->charged(serial_, form_, std::move(response));
}

void HttpConnection::Exchange::beginStream(int status, std::string_view content_type) {
  if (stage_ != Stage::kOpen) return;
  stage_ = Stage::kStreaming;
  try {
    HttpHeaders headers;
    {
      std::lock_guard lock(connection_->mutex_);
      headers = connection_->answer_headers_;
    }
    bool alive = true;
    connection_->send(serial_,
                      responseHead(status, content_type, chunked_ ? kChunkedLength : kLengthUntilClose,
                                   connection_->promiseKeepAlive(), form_.request_id, headers),
                      false, true, alive);
  } catch (...) {
    connection_->breakOff();
  }
}

bool HttpConnection::Exchange::write(std::string_view bytes) {
  if (stage_ != Stage::kStreaming) return false;
  bool alive = true;
  try {
    std::string chunk;
    if (bytes.empty() || head_only_) {
      bytes = {};
    } else if (chunked_) {
      appendChunk(chunk, bytes);
      bytes = chunk;
    }
    connection_->send(serial_, bytes, false, true, alive);
  } catch (...) {
    connection_->breakOff();
    alive = false;
  }
  return alive;
}

void HttpConnection::Exchange::endStream() {
  if (stage_ != Stage::kStreaming) return;
  stage_ = Stage::kDone;
  bool alive = true;
  connection_->send(serial_, head_only_ || !chunked_ ? std::string_view() : kLastChunk, true, false, alive);
}

void HttpConnection::Exchange::onAbort(std::function<void()> callback) {
  connection_->setAbortCallback(serial_, std::move(callback));
}

bool HttpConnection::promiseKeepAlive() {
  if (overrun_ || context_.leaving()) request_keeps_alive_ = false;
  return request_keeps_alive_;
}

// The caller holds mutex_.
void HttpConnection::queue(std::string_view head, std::string body, bool last) {
  if (pending_.empty() && body.size() > head.size()) {
    body.insert(0, head);
    pending_ = std::move(body);
  } else {
    pending_ += head;
    pending_ += body;
  }
  answered_ = last;
  if (flush_posted_) return;
  flush_posted_ = true;
  asio::post(stream_.executor(), [self = shared_from_this()] { self->guarded([&] { self->flush(); }); });
}

// The caller holds mutex_.
bool HttpConnection::readsTooSlowly() const {
  return backlog_since_ && steady_clock::now() - *backlog_since_ >= context_.options.stream_backlog_timeout;
}

void HttpConnection::send(uint64_t serial, std::string_view bytes, bool last, bool bounded, bool& alive) noexcept {
  try {
    std::lock_guard lock(mutex_);
    alive = open_ && serial == serial_ && !answered_;
    if (!alive) return;
    const size_t waiting = pending_.size() + bytes.size();
    const bool granted =
        !bounded || (!readsTooSlowly() && queued_charge_.resize(waiting + being_written_) == MemoryAnswer::kGranted);
    if (granted) {
      if (waiting > context_.options.max_stream_backlog && !backlog_since_) backlog_since_ = steady_clock::now();
      return queue(bytes, {}, last);
    }
    alive = false;
    open_ = false;
    stream_.breakOff();
    return;
  } catch (...) {
    alive = false;
  }
  breakOff();
}

HttpResponse HttpConnection::charged(uint64_t serial, const ErrorForm& form, HttpResponse response) noexcept {
  try {
    if (response.body.size() <= kUncharged) return response;
    if (!response.memory.client()) {
      std::lock_guard lock(mutex_);
      if (serial != serial_) return response;
      response.memory = ClientCharge(queued_charge_.client());
    }
    const MemoryAnswer answer = response.memory.resize(response.body.size());
    if (answer != MemoryAnswer::kGranted) return ApiError::outOfMemory(answer).response(form);
    return response;
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
  breakOff();
  return response;
}

void HttpConnection::respond(uint64_t serial, const ErrorForm& form, bool head_only, HttpResponse response) noexcept {
  try {
    response = charged(serial, form, std::move(response));
    std::lock_guard lock(mutex_);
    if (!open_ || serial != serial_ || answered_) return;
    if (response.memory.client()) queued_charge_ = std::move(response.memory);
    response.headers.insert(response.headers.end(), answer_headers_.begin(), answer_headers_.end());
    const std::string head =
        responseHead(response.status, response.content_type, static_cast<int64_t>(response.body.size()),
                     promiseKeepAlive(), form.request_id, response.headers);
    return queue(head, head_only ? std::string() : std::move(response.body), true);
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
  breakOff();
}

void HttpConnection::addHeaders(uint64_t serial, const HttpHeaders& headers) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (serial == serial_ && !answered_) answer_headers_.insert(answer_headers_.end(), headers.begin(), headers.end());
    return;
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
  breakOff();
}

// Allocates nothing: the pending read or write fails, which closes the connection on its strand.
void HttpConnection::breakOff() noexcept {
  std::lock_guard lock(mutex_);
  if (!open_) return;
  open_ = false;
  stream_.breakOff();
}

void HttpConnection::setAbortCallback(uint64_t serial, std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (serial != serial_ || answered_) return;
    if (open_) {
      abortCallback_.swap(callback);
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
    flush_posted_ = false;
    if (!writing_.empty()) return;
    writing_.swap(pending_);
    backlog_since_.reset();
    being_written_ = writing_.size();
    complete = answered_;
    if (writing_.empty()) queued_charge_.release();
  }
  written_ = 0;
  if (!writing_.empty()) return writeSome();
  if (complete && state_ == State::kHandling) finishResponse();
}

void HttpConnection::writeSome() {
  const auto now = steady_clock::now();
  if (!behind_) {
    behind_ = true;
    pace_.begin(now);
  }
  setWriteDeadline(std::min(now + context_.options.write_timeout, pace_.deadline()));
  stream_.writeSome(std::string_view(writing_).substr(written_),
                    [self = shared_from_this()](error_code error, size_t bytes) {
                      self->guarded([&] { self->onWritten(error, bytes); });
                    });
}

void HttpConnection::onWritten(error_code error, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (error) return close();
  context_.options.counters->sent_bytes += bytes;
  written_ += bytes;
  pace_.took(bytes);
  if (written_ < writing_.size()) return writeSome();
  freeText(writing_);
  bool waiting;
  {
    std::lock_guard lock(mutex_);
    being_written_ = 0;
    waiting = !pending_.empty();
    // Shrinking a charge cannot fail.
    if (queued_charge_.bytes() > pending_.size()) queued_charge_.resize(pending_.size());
  }
  if (!waiting) behind_ = false;
  setWriteDeadline(steady_clock::time_point::max());
  flush();
}

void HttpConnection::finishResponse() {
  std::function<void()> dropped;
  {
    std::lock_guard lock(mutex_);
    dropped.swap(abortCallback_);
  }
  if (!request_keeps_alive_ || overrun_ || context_.stopped()) return linger();
  expectRequest();
}

void HttpConnection::linger() {
  state_ = State::kLingering;
  setPhase(ConnectionPhase::kLingering);
  setDeadline(kLingerTimeout);
  if (stream_.endWrites()) return close();
  consume(input_.size() - input_begin_);
  readMore();
}

void HttpConnection::close() noexcept {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  if (handshaking_) ++context_.options.counters->tls_failures;
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    open_ = false;
    stream_.close();
    callback.swap(abortCallback_);
    if (answered_ && pending_.empty() && writing_.empty()) callback = nullptr;
    freeText(pending_);
    queued_charge_.release();
  }
  freeText(input_);
  input_begin_ = 0;
  input_charge_.release();
  request_ = HttpRequest();
  try {
    timer_.cancel();
    room_timer_.cancel();
    if (callback) callback();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace chorus::server
