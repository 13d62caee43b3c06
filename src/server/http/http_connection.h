// One TCP connection of the HTTP server. Only http.cc and http_connection.cc include this: it brings Boost.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/http.h"

namespace chorus::server {

// What a connection needs of its server; outlives every connection.
struct HttpConnectionContext {
  const HttpServerOptions& options;
  const HttpHandler& handler;
  std::function<bool()> draining;
};

// Reads on a strand of its own; one read is always outstanding while the buffer has room, also while a handler
// works, which is how a client that leaves is noticed. Requests are answered strictly one after another.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                                  boost::asio::strand<boost::asio::io_context::executor_type>>;

  HttpConnection(Socket socket, const HttpConnectionContext& context);

  void start();
  // From any thread: closes if no request is under way.
  void closeIfIdle();
  // From any thread: breaks off whatever is under way.
  void abort();

 private:
  class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State {
    kReading,    // a request is awaited or arriving
    kHandling,   // a handler owns the exchange
    kLingering,  // answered; input is discarded until the client closes, so that it can read the answer
    kClosed,
  };

  void expectRequest();
  void readMore();
  void onRead(boost::system::error_code error, size_t bytes);
  void parseBuffered();
  bool acceptHeader();
  void dispatch();
  void reject(int status, std::string message);
  void rejectParse(boost::system::error_code error);
  void setDeadline(std::chrono::milliseconds delay);
  void clearDeadline();
  void waitForDeadline();
  void onDeadline();
  void flush();
  void writeSome();
  void finishResponse();
  void linger();
  void close();

  // Exchange's side, any thread. serial tells a stale exchange from the present one.
  void send(uint64_t serial, std::string bytes, bool last, bool bounded, bool& alive);
  bool keepAlive() const;
  void setAbortCallback(uint64_t serial, std::function<void()> callback);

  HttpConnectionContext context_;
  Socket socket_;
  boost::asio::steady_timer timer_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::array<char, size_t{16} << 10> readBuffer_;
  boost::beast::flat_buffer input_;  // received, not yet parsed
  std::optional<Parser> parser_;
  State state_ = State::kReading;
  bool headerSeen_ = false;
  bool reading_ = false;
  bool requestKeepsAlive_ = true;
  size_t lingered_ = 0;
  std::string writing_;  // bytes handed to the socket
  size_t written_ = 0;

  std::mutex mutex_;  // guards what follows
  uint64_t serial_ = 0;
  bool open_ = true;      // the client can still be written to
  bool answered_ = true;  // the present response is complete
  bool flushPosted_ = false;
  std::string pending_;  // bytes waiting behind writing_
  std::function<void()> abortCallback_;
};

}  // namespace chorus::server
