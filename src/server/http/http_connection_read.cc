#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>

#include "base/free_text.h"
#include "server/errors.h"
#include "server/http/http_connection.h"
#include "server/http/http_exchange.h"
#include "server/http/http_wire.h"

namespace chorus::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr size_t kPipelineBytes = size_t{64} << 10;
// How long reading may pause while kPipelineBytes wait behind a request. After that, further input is dropped, so that
// the end of the connection is noticed.
constexpr std::chrono::milliseconds kPipelinePatience{200};
constexpr size_t kLargeBody = size_t{1} << 20;
constexpr size_t kDiscardBytes = size_t{16} << 20;

std::string toString(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string lowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// The memory of the texts of a request, without its body.
size_t headBytes(const HttpRequest& request) {
  size_t bytes = request.method.capacity() + request.path.capacity() + request.query.capacity() +
                 request.id.capacity() + request.headers.capacity() * sizeof(HttpHeaders::value_type);
  for (const auto& [name, value] : request.headers) bytes += name.capacity() + value.capacity();
  return bytes;
}

}  // namespace

void HttpConnection::readMore() {
  if (reading_ || state_ == State::kClosed) return;
  if (state_ == State::kHandling && !overrun_ && input_.size() - input_begin_ >= kPipelineBytes) return waitForRoom();
  reading_ = true;
  stream_.readSome([self = shared_from_this()](error_code error, std::span<const char> bytes) {
    self->guarded([&] { self->onRead(error, bytes); });
  });
}

// Pauses reading. Short requests consume the pipelined input before kPipelinePatience ends; behind a long request,
// further input is dropped.
void HttpConnection::waitForRoom() {
  room_timer_.expires_after(kPipelinePatience);
  room_timer_.async_wait([self = shared_from_this(), serial = serial_](error_code error) {
    self->guarded([&] {
      if (error || self->state_ != State::kHandling || self->serial_ != serial) return;
      self->overrun_ = true;
      self->readMore();
    });
  });
}

void HttpConnection::onRead(error_code error, std::span<const char> bytes) {
  reading_ = false;
  if (state_ == State::kClosed) return;
  if (error == asio::error::eof) return onEndOfInput();
  if (error || phase_ == ConnectionPhase::kEvicted) return close();
  context_.options.counters->received_bytes += bytes.size();
  if (state_ == State::kLingering || overrun_) {
    discarded_ += bytes.size();
    if (discarded_ > kDiscardBytes) return close();
    return readMore();
  }
  keepInput(bytes);
  if (state_ == State::kHandling) return readMore();
  if (!std::exchange(head_started_, true) && !peer_.reserved) expectInput(context_.options.header_timeout);
  parseBuffered();
}

// A client that closes its sending side counts as disconnected, unless its complete answer is still being written.
void HttpConnection::onEndOfInput() {
  bool writing;
  {
    std::lock_guard lock(mutex_);
    writing = open_ && answered_ && (being_written_ > 0 || !pending_.empty());
  }
  if (state_ != State::kHandling || !writing) return close();
  request_keeps_alive_ = false;
}

void HttpConnection::keepInput(std::span<const char> bytes) {
  if (input_begin_ > 0) {
    input_.erase(0, input_begin_);
    input_begin_ = 0;
  }
  const size_t needed = input_.size() + bytes.size();
  const size_t capacity = needed <= input_.capacity() ? input_.capacity() : std::max(needed, 2 * input_.capacity());
  if (state_ == State::kHandling && !chargeInput(capacity)) {
    discarded_ += bytes.size();
    return;
  }
  input_.reserve(capacity);
  input_.append(bytes.data(), bytes.size());
}

// Charges for input behind the current request. Returns false if further input must be dropped.
bool HttpConnection::chargeInput(size_t bytes) {
  if (input_charge_.resize(bytes) == MemoryAnswer::kGranted) return true;
  overrun_ = true;
  return false;
}

// Frees the memory of consumed input: a request may wait for long, and many connections may wait for their clients.
void HttpConnection::consume(size_t bytes) {
  input_begin_ += bytes;
  if (input_begin_ < input_.size()) return;
  freeText(input_);
  input_begin_ = 0;
  input_charge_.release();
}

void HttpConnection::parseBuffered() {
  while (state_ == State::kReading && !input_.empty()) {
    if (!decoder_) {
      if (!parseHead()) break;
      continue;
    }
    const BodyDecoder::Step step = decoder_->next(std::string_view(input_).substr(input_begin_));
    if (decoder_->fault()) return reject(decoder_->fault()->status, decoder_->fault()->message);
    if (!step.data.empty() && !growBody(step.data)) return;
    consume(step.used);
    if (decoder_->done()) return dispatch();
    if (step.used == 0) break;
  }
  readMore();
}

// Returns true if there may be more to parse.
bool HttpConnection::parseHead() {
  // Empty lines before a request are allowed.
  while (std::string_view(input_).substr(input_begin_).starts_with("\r\n")) consume(2);
  if (input_.empty()) return false;
  setPhase(ConnectionPhase::kHead);
  const std::string_view bytes = std::string_view(input_).substr(input_begin_);
  if (bytes == "\r") return false;
  const HeadScanner::Result found = scanner_->scan(bytes);
  if (found.fault) {
    reject(found.fault->status, found.fault->message);
    return false;
  }
  if (found.length == 0) return false;
  const std::string_view head = bytes.substr(0, found.length);
  const HeadCheck check = checkHead(head);
  if (check.fault) {
    reject(check.fault->status, check.fault->message);
    return false;
  }
  if (!acceptHead(head, check.framing)) return false;
  consume(found.length);
  if (decoder_->done()) {
    dispatch();
    return false;
  }
  setPhase(ConnectionPhase::kBody);
  if (!peer_.reserved) expectInput(context_.options.body_timeout);
  if (check.framing.expects_continue && input_.empty()) {
    {
      std::lock_guard lock(mutex_);
      pending_ += "HTTP/1.1 100 Continue\r\n\r\n";
    }
    flush();
  }
  return true;
}

// Fills in request_ and makes the checks that do not need the body. Returns false if the request was rejected.
bool HttpConnection::acceptHead(std::string_view head, const BodyFraming& framing) {
  if (!readFields(head) || !checkAccess()) return false;
  const HttpServerOptions& options = context_.options;
  max_body_bytes_ = options.body_limit ? options.body_limit(request_) : options.max_body_bytes;
  if (!framing.chunked && framing.length > max_body_bytes_) {
    reject(413, "The request's body is too large.");
    return false;
  }
  declared_length_ = framing.chunked ? 0 : framing.length;
  decoder_.emplace(framing);
  return true;
}

bool HttpConnection::readFields(std::string_view head) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<uint32_t>(context_.options.max_header_bytes + 1));
  parser.skip(true);
  error_code error;
  parser.put(asio::buffer(head.data(), head.size()), error);
  if (error || !parser.is_header_done()) {
    reject(400, "The request is not well-formed HTTP.");
    return false;
  }
  const auto& message = parser.get();
  request_.method = toString(message.method_string());
  std::string target = toString(message.target());
  if (target.size() > context_.options.max_target_bytes) {
    reject(414, "The request's URL is too long.");
    return false;
  }
  const size_t question = target.find('?');
  if (question != std::string::npos) {
    request_.query = target.substr(question + 1);
    target.resize(question);
  }
  request_.path = std::move(target);
  std::string_view forwarded_for;
  for (const auto& field : message) {
    request_.headers.emplace_back(lowerCase(toString(field.name_string())), toString(field.value()));
  }
  for (const auto& [name, value] : request_.headers) {
    if (name == "x-forwarded-for") forwarded_for = value;
  }
  const std::string_view sent_id = request_.header("x-request-id");
  request_.id = isWellFormedRequestId(sent_id) ? std::string(sent_id) : randomId("req-");
  request_.client = context_.clients.find(context_.proxies.clientOf(peer_.address, forwarded_for));
  request_.memory = ClientCharge(request_.client);
  old_version_ = message.version() < 11;
  request_keeps_alive_ = message.keep_alive() && !old_version_ && !peer_.reserved;
  return true;
}

bool HttpConnection::checkAccess() {
  const auto is_this = [&](const std::string& path) {
    return path.ends_with('/') ? request_.path.starts_with(path) : request_.path == path;
  };
  if (peer_.reserved && std::ranges::none_of(context_.options.reserved_paths, is_this)) {
    reject(ApiError::unavailable("The server has too many connections; try again later."));
    return false;
  }
  const std::string_view origin = request_.header("origin");
  if (!context_.cors.allows(origin, request_.header("host"))) {
    reject(403, "Requests from this origin are not allowed; add the origin to the server's --cors_origins.");
    return false;
  }
  cors_headers_ = context_.cors.answerHeaders(origin);
  return true;
}

// Charges the client as the body arrives, not for the length that it claims.
bool HttpConnection::growBody(std::string_view data) {
  std::string& body = request_.body;
  const size_t needed = body.size() + data.size();
  if (needed > max_body_bytes_) {
    reject(413, "The request's body is too large.");
    return false;
  }
  if (needed > request_.memory.bytes()) {
    const size_t most = declared_length_ > 0 ? static_cast<size_t>(declared_length_) : max_body_bytes_;
    const size_t capacity = std::max(needed, std::min(2 * request_.memory.bytes(), most));
    const MemoryAnswer answer = request_.memory.resize(capacity);
    if (answer != MemoryAnswer::kGranted) {
      rejectMemory(answer);
      return false;
    }
    reserveBody(capacity);
  }
  body += data;
  return true;
}

// Large uploads use the memory of earlier ones.
void HttpConnection::reserveBody(size_t capacity) {
  std::string& body = request_.body;
  if (capacity <= body.capacity()) return;
  if (max_body_bytes_ <= context_.options.max_body_bytes || capacity < kLargeBody) return body.reserve(capacity);
  std::string larger = context_.bodies->take(capacity);
  larger += body;
  body.swap(larger);
  request_.body_memory = context_.bodies;
}

void HttpConnection::dispatch() {
  request_.head_memory = ClientCharge(request_.client);
  const size_t head_bytes = headBytes(request_);
  const MemoryAnswer granted = request_.head_memory.resize(head_bytes);
  if (granted != MemoryAnswer::kGranted && head_bytes > kUncharged) return rejectMemory(granted);
  // HTTP/1.0 has no chunks, so the end of the connection ends its streams. The allocation comes first, while an error
  // can still be answered.
  const uint64_t serial = serial_ + 1;
  const ErrorForm form = errorFormFor(request_.path, request_.id);
  const auto exchange =
      std::make_shared<Exchange>(shared_from_this(), serial, form, request_.method == "HEAD", !old_version_);
  HttpHeaders headers = idHeaders(form);
  headers.insert(headers.end(), cors_headers_.begin(), cors_headers_.end());
  if (!setPhase(ConnectionPhase::kBusy)) return close();
  if (!input_.empty() && !chargeInput(input_.capacity())) consume(input_.size() - input_begin_);
  state_ = State::kHandling;
  clearDeadline();
  HttpRequest request = std::move(request_);
  request_ = HttpRequest();
  request.received = steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    serial_ = serial;
    answered_ = false;
    queued_charge_ = ClientCharge(request.client);
    answer_headers_ = std::move(headers);
  }
  cors_headers_.clear();
  readMore();
  if (auto answer = context_.cors.preflight(request)) {
    reportUnrouted(request.id, request.method, request.client.get(), *answer);
    return exchange->respond(std::move(*answer));
  }
  try {
    context_.handler(std::move(request), exchange);
  } catch (...) {
    exchange->respond(currentApiError().response(form));
  }
}

}  // namespace chorus::server
