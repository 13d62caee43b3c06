// One TCP connection of the HTTP server. Only sources of this folder that need Boost include this.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/body_decoder.h"
#include "server/http/client_address.h"
#include "server/http/connection_limits.h"
#include "server/http/cors.h"
#include "server/http/header_checks.h"
#include "server/http/http.h"
#include "server/http/read_pace.h"

namespace chorus::server {

// What a connection needs of its server; outlives every connection.
struct HttpConnectionContext {
  const HttpServerOptions& options;
  const HttpHandler& handler;
  const CorsPolicy& cors;
  const TrustedProxies& proxies;
  ClientRegistry& clients;
  std::function<bool()> draining;
};

// Reads on a strand of its own, also while a handler works, which is how a client that leaves is noticed. Requests are
// answered strictly one after another. http_connection.cc has the reading side, http_connection_write.cc the answers.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                                  boost::asio::strand<boost::asio::io_context::executor_type>>;

  struct Peer {
    std::string address;             // in text form
    std::shared_ptr<Client> client;  // of that address
    bool reserved = false;           // the connection has a place of the reserve
  };
  HttpConnection(Socket socket, Peer peer, const HttpConnectionContext& context);

  void start();
  // From any thread: closes if no request is under way.
  void closeIfIdle();
  // From any thread: closes unless a complete request is handled.
  void giveWay();
  // From any thread: breaks off whatever is under way.
  void abort();

  // From any thread: what connection_limits.h decides by.
  ConnectionView view() const;

 private:
  class Exchange;
  enum class State {
    kReading,    // a request is awaited or arriving
    kHandling,   // a handler owns the exchange
    kLingering,  // answered; input is discarded until the client closes, so that it can read the answer
    kClosed,
  };

  // Reading; on the strand.
  void expectRequest();
  void readMore();
  void onRead(boost::system::error_code error, size_t bytes);
  void onEndOfInput();
  void keepInput(size_t bytes);
  void waitForRoom();
  void parseBuffered();
  bool parseHead();
  bool acceptHead(std::string_view head, const BodyFraming& framing);
  bool readFields(std::string_view head);
  bool checkAccess();
  bool growBody(std::string_view data);
  void dispatch();
  void reject(const HttpResponse& response);
  void reject(int status, std::string_view message);
  void rejectMemory(MemoryAnswer answer);
  void consume(size_t bytes);
  void setPhase(ConnectionPhase phase);
  // Runs the body of a completion handler: what it throws ends in an error answer or closes this connection alone.
  template <typename Body>
  void guarded(Body body) noexcept {
    try {
      body();
    } catch (...) {
      failNow(std::current_exception());
    }
  }
  void failNow(std::exception_ptr error) noexcept;

  // Time; on the strand.
  void setDeadline(std::chrono::steady_clock::time_point deadline);
  void setDeadline(std::chrono::milliseconds delay);
  void clearDeadline();
  void waitForDeadline();
  void onDeadline();

  // Writing; on the strand.
  void flush();
  void writeSome();
  void onWritten(boost::system::error_code error, size_t bytes);
  void finishResponse();
  void linger();
  void close() noexcept;

  // Exchange's side, any thread. serial distinguishes a stale exchange from the present one.
  void send(uint64_t serial, std::string_view bytes, bool last, bool bounded, bool& alive) noexcept;
  void respond(uint64_t serial, const std::string& id, bool head_only, HttpResponse response) noexcept;
  void queue(std::string_view head, std::string body, bool last);
  void breakOff() noexcept;
  bool keepAlive() const;
  void setAbortCallback(uint64_t serial, std::function<void()> callback);

  HttpConnectionContext context_;
  Socket socket_;
  const Peer peer_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer room_timer_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::atomic<ConnectionPhase> phase_{ConnectionPhase::kSilent};
  std::atomic<int64_t> phase_since_{0};

  std::array<char, size_t{16} << 10> read_buffer_;
  std::string input_;  // received, not yet parsed; from input_begin_
  size_t input_begin_ = 0;
  ClientCharge input_charge_;  // for what waits behind a request
  State state_ = State::kReading;
  bool reading_ = false;
  bool head_started_ = false;
  std::atomic<bool> overrun_{false};  // input behind the present request was dropped: it is the last one
  std::atomic<bool> requestKeepsAlive_{true};
  size_t discarded_ = 0;  // bytes, after the last request

  // The request that arrives.
  std::optional<HeadScanner> scanner_;
  std::optional<BodyDecoder> decoder_;  // once the head is complete
  uint64_t declared_length_ = 0;
  HttpRequest request_;
  bool old_version_ = false;  // HTTP/1.0
  HttpHeaders cors_headers_;

  std::string writing_;  // bytes handed to the socket
  size_t written_ = 0;
  ReadPace pace_;
  bool behind_ = false;  // bytes wait for the client: pace_ counts

  std::mutex mutex_;  // guards what follows
  uint64_t serial_ = 0;
  bool open_ = true;      // the client can still be written to
  bool answered_ = true;  // the present response is complete
  bool flushPosted_ = false;
  std::string pending_;         // bytes waiting behind writing_
  size_t being_written_ = 0;    // writing_'s size
  ClientCharge queued_charge_;  // for writing_ and pending_
  HttpHeaders answer_headers_;  // further headers of the present response
  std::function<void()> abortCallback_;
};

}  // namespace chorus::server
