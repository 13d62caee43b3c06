// The byte stream of one connection: all that HttpConnection uses of a socket, with or without TLS.
#pragma once

#include <sys/socket.h>

#include <array>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "server/http/tls_certificates.h"
#include "server/http/tls_handshakes.h"

namespace chorus::server {

// Not thread-safe, except breakOff(). Handlers run on the stream's strand, never within the call that they are passed
// to. They must be copyable and must not throw.
class ConnectionStream {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                                  boost::asio::strand<boost::asio::io_context::executor_type>>;
  using ErrorCode = boost::system::error_code;

  // tls: null: without TLS.
  ConnectionStream(Socket socket, const TlsCertificates* tls) : socket_(std::move(socket)) {
    if (tls != nullptr) tls_ = tls->begin(socket_.native_handle());
  }

  Socket::executor_type executor() { return socket_.get_executor(); }
  bool hasTls() const { return tls_ != nullptr; }

  // Small writes leave at once. Called before the first read or write.
  void begin() {
    ErrorCode ignored;
    socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
  }
  // A connection with TLS calls it before its first read or write. Until the handler, a void(ErrorCode, size_t), is
  // called, only breakOff() and close() may be. client: as whose work the steps count. The handler keeps the stream
  // alive.
  template <typename Handler>
  void handshake(TlsHandshakes& worker, uint64_t client, Handler handler) {
    handshakes_ = &worker;
    client_ = client;
    awaitStep(Socket::wait_read, std::move(handler));
  }
  // After a failed handshake: makes this a stream without TLS. Returns whether the client sent HTTP without TLS.
  bool dropTls() {
    const bool plain = tls_->sawPlainHttp();
    tls_.reset();
    return plain;
  }
  // Calls the handler, a void(ErrorCode, std::span<const char>), with at least one byte that has arrived. The bytes are
  // valid only during that call: a connection that waits for input holds no memory for it.
  template <typename Handler>
  void readSome(Handler handler) {
    const auto read = [this](Handler& next) { readNow(next); };
    // Bytes that the session has already taken from the socket do not make the socket readable.
    if (socket_.is_open() && !(tls_ && tls_->holdsInput())) {
      return whenReady(Socket::wait_read, read, std::move(handler));
    }
    boost::asio::post(executor(), [read, handler = std::move(handler)]() mutable { read(handler); });
  }
  // Whether bytes from the client wait in the socket.
  bool hasInput() const {
    ErrorCode ignored;
    return socket_.available(ignored) > 0;
  }
  // Writes some of the bytes, which must stay valid until the handler, a void(ErrorCode, size_t bytes), is called.
  template <typename Handler>
  void writeSome(std::string_view bytes, Handler handler) {
    if (tls_) return advance([bytes](TlsSession& tls) { return tls.write(bytes); }, std::move(handler));
    socket_.async_write_some(boost::asio::buffer(bytes.data(), bytes.size()), std::move(handler));
  }
  // Tells the client that nothing more follows. Reading goes on.
  ErrorCode endWrites() {
    if (tls_) tls_->endWrites();
    ErrorCode error;
    socket_.shutdown(Socket::shutdown_send, error);
    return error;
  }
  // Makes pending and later reads and writes fail. May be called on any thread while the stream is not closed.
  // Allocates nothing.
  void breakOff() noexcept { ::shutdown(socket_.native_handle(), SHUT_RDWR); }
  // close() will discard what the client has not read, which also frees the kernel's memory for it.
  void resetOnClose() {
    ErrorCode ignored;
    socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
  }
  // Waiting handlers are called with an error, or destroyed.
  void close() noexcept {
    closed_ = true;
    if (stepping_ && handshakes_->drop(step_)) stepping_ = false;
    // The descriptor must not become that of another connection while a step of the handshake uses it.
    if (stepping_) return breakOff();
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  static constexpr size_t kReadBytes = size_t{64} << 10;  // on the stack; a record of TLS has at most 16 KiB

  // Waits for the socket before each step, so that a silent client never has a turn of the worker.
  template <typename Handler>
  void awaitStep(Socket::wait_type direction, Handler handler) {
    whenReady(direction, [this](Handler& next) { beginStep(next); }, std::move(handler));
  }

  // The session belongs to the worker from here to endStep().
  template <typename Handler>
  void beginStep(Handler handler) {
    if (!socket_.is_open() || handshakes_->stopped()) {
      return finish(boost::asio::error::operation_aborted, 0, std::move(handler));
    }
    auto done = [this, strand = executor(), handler = std::move(handler)](TlsSession::Result result) mutable {
      boost::asio::post(strand, [this, result, handler = std::move(handler)]() mutable {
        endStep(result.status, std::move(handler));
      });
    };
    stepping_ = true;
    try {
      step_ = handshakes_->step(client_, *tls_, std::move(done));
    } catch (...) {
      stepping_ = false;
      throw;
    }
  }

  template <typename Handler>
  void endStep(TlsSession::Status status, Handler handler) {
    stepping_ = false;
    if (closed_) {
      close();
      return handler(boost::asio::error::operation_aborted, 0);
    }
    const ErrorCode error = errorOf(status);
    if (error != boost::asio::error::would_block) return handler(error, 0);
    try {
      awaitStep(status == TlsSession::Status::kWantsRead ? Socket::wait_read : Socket::wait_write, handler);
    } catch (const std::exception&) {  // without memory to wait
      handler(boost::asio::error::no_memory, 0);
    }
  }

  // Takes the step until it is done, and waits for the socket in between.
  template <typename Step, typename Handler>
  void advance(Step step, Handler handler) {
    if (!socket_.is_open()) return finish(boost::asio::error::operation_aborted, 0, std::move(handler));
    const TlsSession::Result result = step(*tls_);
    switch (result.status) {
      case TlsSession::Status::kDone:
        return finish({}, result.bytes, std::move(handler));
      case TlsSession::Status::kWantsRead:
        return advanceWhen(Socket::wait_read, std::move(step), std::move(handler));
      case TlsSession::Status::kWantsWrite:
        return advanceWhen(Socket::wait_write, std::move(step), std::move(handler));
      case TlsSession::Status::kEnd:
      case TlsSession::Status::kFailed:
        break;
    }
    finish(errorOf(result.status), 0, std::move(handler));
  }

  template <typename Step, typename Handler>
  void advanceWhen(Socket::wait_type direction, Step step, Handler handler) {
    whenReady(direction, [this, step = std::move(step)](Handler& next) { advance(step, next); }, std::move(handler));
  }

  // Calls next(handler) when the socket can be read or written, or the handler with an error.
  template <typename Next, typename Handler>
  void whenReady(Socket::wait_type direction, Next next, Handler handler) {
    socket_.async_wait(direction, [next = std::move(next), handler = std::move(handler)](ErrorCode error) mutable {
      if (error) return handler(error, {});
      try {
        next(handler);
      } catch (const std::exception&) {  // without memory for the next operation
        handler(ErrorCode(boost::asio::error::no_memory), {});
      }
    });
  }

  // Must not be called within a call of readSome(), because it calls the handler.
  template <typename Handler>
  void readNow(Handler handler) {
    if (!socket_.is_open()) return handler(boost::asio::error::operation_aborted, {});
    std::array<char, kReadBytes> bytes;  // not filled, because most reads are short
    ErrorCode error;
    size_t count = 0;
    auto direction = Socket::wait_read;
    if (tls_) {
      const TlsSession::Result result = tls_->read(bytes);
      count = result.bytes;
      if (result.status == TlsSession::Status::kWantsWrite) direction = Socket::wait_write;
      error = errorOf(result.status);
    } else {
      count = socket_.read_some(boost::asio::buffer(bytes), error);
    }
    if (error != boost::asio::error::would_block) return handler(error, std::span<const char>(bytes.data(), count));
    whenReady(direction, [this](Handler& next) { readNow(next); }, std::move(handler));
  }

  static ErrorCode errorOf(TlsSession::Status status) {
    switch (status) {
      case TlsSession::Status::kDone:
        return {};
      case TlsSession::Status::kWantsRead:
      case TlsSession::Status::kWantsWrite:
        return boost::asio::error::would_block;
      case TlsSession::Status::kEnd:
        return boost::asio::error::eof;
      case TlsSession::Status::kFailed:
        break;
    }
    return boost::asio::error::connection_reset;
  }

  template <typename Handler>
  void finish(ErrorCode error, size_t bytes, Handler handler) {
    boost::asio::post(executor(), [error, bytes, handler = std::move(handler)]() mutable { handler(error, bytes); });
  }

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
  // State of the TLS handshake.
  TlsHandshakes* handshakes_ = nullptr;
  uint64_t client_ = 0;
  uint64_t step_ = 0;      // the id of the last step
  bool stepping_ = false;  // a step waits or is being computed
  bool closed_ = false;
};

}  // namespace chorus::server
