// A TCP connection of the HTTP server. Only sources of this folder that need Boost include this.
#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "server/errors.h"
#include "server/http/body_decoder.h"
#include "server/http/body_memory.h"
#include "server/http/client_address.h"
#include "server/http/connection_limits.h"
#include "server/http/connection_stream.h"
#include "server/http/cors.h"
#include "server/http/header_checks.h"
#include "server/http/http.h"
#include "server/http/read_pace.h"

namespace chorus::server {

// The parts of the server that its connections use. They outlive every connection.
struct HttpConnectionContext {
  const HttpServerOptions& options;
  const HttpHandler& handler;
  const CorsPolicy& cors;
  const TrustedProxies& proxies;
  ClientRegistry& clients;
  std::shared_ptr<BodyMemory> bodies;
  std::function<bool()> leaving;        // answers say that their connection ends
  std::function<bool()> stopped;        // connections end after their answer, whatever its head says
  TlsHandshakes* handshakes = nullptr;  // null without TLS
};

// Runs on a strand of its own. It also reads while a handler works, in order to notice that the client disconnects.
// Requests are answered strictly one after another. http_connection.cc has its beginning, its deadlines and its end,
// http_connection_read.cc the way of a request to the handler, http_connection_write.cc the way of the answer.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  struct Peer {
    std::string address;             // in text form
    std::shared_ptr<Client> client;  // the client of `address`
    bool reserved = false;           // the connection occupies a reserved slot
  };
  HttpConnection(ConnectionStream stream, Peer peer, const HttpConnectionContext& context);

  void start();
  // Any thread. The server takes no more requests: closes the connection if none begins to arrive very soon. One that
  // arrives must be complete within the given time, or is answered with status 503.
  void endArrivals(std::chrono::milliseconds within);
  // Any thread. Closes the connection if it still is in the phase `seen`, which must not be kBusy. Returns false if it
  // is in another phase.
  bool evict(ConnectionPhase seen) noexcept;
  // Any thread. Closes the connection in any state.
  void abort();

  // Any thread. The state by which placeConnection() decides.
  ConnectionView view() const;

 private:
  class Exchange;
  enum class State {
    kReading,    // waits for a request or receives one
    kHandling,   // a handler owns the exchange
    kLingering,  // answered; input is discarded until the client closes, so that it can read the answer
    kClosed,
  };

  // TLS; on the strand.
  void beginTls();
  void onHandshake(boost::system::error_code error);

  // Reading; on the strand.
  void expectRequest();
  void readMore();
  void onRead(boost::system::error_code error, std::span<const char> bytes);
  void onEndOfInput();
  void keepInput(std::span<const char> bytes);
  bool chargeInput(size_t bytes);
  void waitForRoom();
  void parseBuffered();
  bool parseHead();
  bool acceptHead(std::string_view head, const BodyFraming& framing);
  bool readFields(std::string_view head);
  bool checkAccess();
  bool growBody(std::string_view data);
  void reserveBody(size_t capacity);
  void dispatch();
  void reject(const ApiError& error);
  void reject(int status, std::string_view message);
  // Reports an answer that the handler did not make. client: null before the head was readable.
  void reportUnrouted(std::string_view id, std::string_view method, const Client* client,
                      const HttpResponse& response) const;
  void rejectMemory(MemoryAnswer answer);
  void consume(size_t bytes);
  // Returns false if the connection was evicted: it then keeps that phase and must handle no request.
  bool setPhase(ConnectionPhase phase);
  // Runs the body of a completion handler. An exception becomes an error answer, or closes this connection only.
  template <typename Body>
  void guarded(Body body) noexcept {
    try {
      body();
    } catch (...) {
      failNow(std::current_exception());
    }
  }
  void failNow(std::exception_ptr error) noexcept;

  // Deadlines; on the strand.
  void setDeadline(std::chrono::milliseconds delay);
  // Sets the deadline for what the client must send of a request, but not beyond arrivals_end_.
  void expectInput(std::chrono::milliseconds delay);
  void clearDeadline();
  void setWriteDeadline(std::chrono::steady_clock::time_point deadline);
  std::chrono::steady_clock::time_point nextDeadline() const { return std::min(deadline_, write_deadline_); }
  void wakeForDeadline();
  void waitForDeadline();
  void onDeadline();

  // Writing; on the strand.
  void flush();
  void writeSome();
  void onWritten(boost::system::error_code error, size_t bytes);
  void finishResponse();
  void linger();
  void close() noexcept;

  // Called by Exchange on any thread. serial: number of the exchange's request; calls for an earlier request are
  // ignored.
  void send(uint64_t serial, std::string_view bytes, bool last, bool bounded, bool& alive) noexcept;
  void addHeaders(uint64_t serial, const HttpHeaders& headers) noexcept;
  HttpResponse charged(uint64_t serial, const ErrorForm& form, HttpResponse response) noexcept;
  void respond(uint64_t serial, const ErrorForm& form, bool head_only, HttpResponse response) noexcept;
  void queue(std::string_view head, std::string body, bool last);
  bool readsTooSlowly() const;
  void breakOff() noexcept;
  // Decides for the answer's head whether the connection stays open after it. A client that is told so may send its
  // next request at once, so the connection then closes only when the server accepts no more.
  bool promiseKeepAlive();
  void setAbortCallback(uint64_t serial, std::function<void()> callback);

  // Heads and answers of at most so many bytes need no memory of the client's share: health checks and refusals must be
  // possible when it is used up.
  static constexpr size_t kUncharged = 4096;

  HttpConnectionContext context_;
  ConnectionStream stream_;
  const Peer peer_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer room_timer_;
  // The time until which the client must send what is expected of it.
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  // The time until which a request must be complete after endArrivals(); max() before.
  std::chrono::steady_clock::time_point arrivals_end_ = std::chrono::steady_clock::time_point::max();
  // The time until which it must read more; max() if no bytes wait for it.
  std::chrono::steady_clock::time_point write_deadline_ = std::chrono::steady_clock::time_point::max();
  std::atomic<ConnectionPhase> phase_{ConnectionPhase::kSilent};
  std::atomic<int64_t> phase_since_{std::chrono::steady_clock::now().time_since_epoch().count()};

  std::string input_;  // received bytes; those from input_begin_ on are not parsed yet
  size_t input_begin_ = 0;
  ClientCharge input_charge_;  // for the memory of input_ behind the current request
  State state_ = State::kReading;
  bool handshaking_ = false;
  bool reading_ = false;
  bool head_started_ = false;
  std::atomic<bool> overrun_{false};  // pipelined input was dropped, so the current request is the last one
  std::atomic<bool> request_keeps_alive_{true};
  size_t discarded_ = 0;  // bytes of input discarded after the last request

  // The request that is being received.
  std::optional<HeadScanner> scanner_;
  std::optional<BodyDecoder> decoder_;  // set once the head is complete
  uint64_t declared_length_ = 0;
  size_t max_body_bytes_ = 0;  // limit for the present request
  HttpRequest request_;
  bool old_version_ = false;  // HTTP/1.0
  HttpHeaders cors_headers_;

  std::string writing_;  // bytes handed to the socket
  size_t written_ = 0;
  ReadPace pace_;
  bool behind_ = false;  // bytes wait for the client, so pace_ is running

  std::mutex mutex_;  // guards what follows
  uint64_t serial_ = 0;
  bool open_ = true;      // the client can still be written to
  bool answered_ = true;  // the current response is complete
  bool flush_posted_ = false;
  std::string pending_;  // bytes to be written after writing_
  // Since when pending_ has had more than max_stream_backlog bytes; none if it has not.
  std::optional<std::chrono::steady_clock::time_point> backlog_since_;
  size_t being_written_ = 0;    // size of writing_
  ClientCharge queued_charge_;  // for writing_ and pending_
  HttpHeaders answer_headers_;  // additional headers of the current response
  std::function<void()> abortCallback_;
};

}  // namespace chorus::server
