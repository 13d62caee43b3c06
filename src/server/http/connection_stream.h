// The byte stream of one connection: all that HttpConnection uses of a socket, with or without TLS.
#pragma once

#include <sys/socket.h>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "server/http/tls_certificates.h"

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
    socket_.native_non_blocking(true, ignored);
  }
  // With TLS, called before the first read or write, with a void(ErrorCode, size_t).
  template <typename Handler>
  void handshake(Handler handler) {
    advance([](TlsSession& tls) { return tls.handshake(); }, std::move(handler));
  }
  // After a failed handshake: makes this a stream without TLS. Returns whether the client sent HTTP without TLS.
  bool dropTls() {
    const bool plain = tls_->sawPlainHttp();
    tls_.reset();
    return plain;
  }
  // Read into, or write from, some of the bytes, which must stay valid until the handler, a
  // void(ErrorCode, size_t bytes), is called.
  template <typename Handler>
  void readSome(std::span<char> bytes, Handler handler) {
    if (tls_) return advance([bytes](TlsSession& tls) { return tls.read(bytes); }, std::move(handler));
    socket_.async_read_some(boost::asio::buffer(bytes.data(), bytes.size()), std::move(handler));
  }
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
  // Waiting handlers are called with an error.
  void close() noexcept {
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  // Takes the step until it is done, and waits for the socket in between.
  template <typename Step, typename Handler>
  void advance(Step step, Handler handler) {
    if (!socket_.is_open()) return finish(boost::asio::error::operation_aborted, 0, std::move(handler));
    const TlsSession::Result result = step(*tls_);
    switch (result.status) {
      case TlsSession::Status::kDone:
        return finish({}, result.bytes, std::move(handler));
      case TlsSession::Status::kWantsRead:
        return wait(Socket::wait_read, std::move(step), std::move(handler));
      case TlsSession::Status::kWantsWrite:
        return wait(Socket::wait_write, std::move(step), std::move(handler));
      case TlsSession::Status::kEnd:
        return finish(boost::asio::error::eof, 0, std::move(handler));
      case TlsSession::Status::kFailed:
        break;
    }
    finish(boost::asio::error::connection_reset, 0, std::move(handler));
  }

  template <typename Step, typename Handler>
  void wait(Socket::wait_type direction, Step step, Handler handler) {
    socket_.async_wait(direction, [this, step, handler](ErrorCode error) mutable {
      if (error) return handler(error, 0);
      try {
        advance(step, handler);
      } catch (const std::exception&) {  // without memory for the next operation
        handler(ErrorCode(boost::asio::error::no_memory), 0);
      }
    });
  }

  template <typename Handler>
  void finish(ErrorCode error, size_t bytes, Handler handler) {
    boost::asio::post(executor(), [error, bytes, handler = std::move(handler)]() mutable { handler(error, bytes); });
  }

  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace chorus::server
