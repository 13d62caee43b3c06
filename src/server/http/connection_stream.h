// The byte stream of one connection: all that HttpConnection uses of a socket. TLS would be a second form of it.
#pragma once

#include <sys/socket.h>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <span>
#include <string_view>
#include <utility>

namespace chorus::server {

// Not thread-safe, except breakOff(). Handlers run on the stream's strand.
class ConnectionStream {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                                  boost::asio::strand<boost::asio::io_context::executor_type>>;
  using ErrorCode = boost::system::error_code;

  explicit ConnectionStream(Socket socket) : socket_(std::move(socket)) {}

  Socket::executor_type executor() { return socket_.get_executor(); }

  // Small writes leave at once. Called before the first read or write.
  void begin() {
    ErrorCode ignored;
    socket_.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  }
  // Read into, or write from, some of the bytes, which must stay valid until the handler, a
  // void(ErrorCode, size_t bytes), is called.
  template <typename Handler>
  void readSome(std::span<char> bytes, Handler&& handler) {
    socket_.async_read_some(boost::asio::buffer(bytes.data(), bytes.size()), std::forward<Handler>(handler));
  }
  template <typename Handler>
  void writeSome(std::string_view bytes, Handler&& handler) {
    socket_.async_write_some(boost::asio::buffer(bytes.data(), bytes.size()), std::forward<Handler>(handler));
  }
  // Tells the client that nothing more follows. Reading goes on.
  ErrorCode endWrites() {
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
  void close() noexcept {
    ErrorCode ignored;
    socket_.close(ignored);
  }

 private:
  Socket socket_;
};

}  // namespace chorus::server
