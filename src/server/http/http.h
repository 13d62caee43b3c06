// An HTTP/1.1 server over TCP or TLS: bounded parsing, keep-alive, pipelining, streams with back-pressure, graceful
// drain. No Boost type appears here, so including this header stays cheap.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/client.h"
#include "server/http/http_counters.h"

namespace chorus::server {

struct KeyRights;       // server/access/api_keys.h
class ApiKeys;          // server/access/api_keys.h
class BodyMemory;       // server/http/body_memory.h
class Usage;            // server/access/usage_limits.h
class RequestRecord;    // server/metrics/request_record.h
class TlsCertificates;  // server/http/tls_certificates.h

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // as sent
  std::string path;     // without the query, percent-encoding kept
  std::string query;    // without '?'
  HttpHeaders headers;  // names in lower case; without trailers
  std::string body;     // complete, with chunks joined
  std::string id;       // the client's x-request-id when it is well-formed, else a random one
  std::chrono::steady_clock::time_point received{};   // when it was completely received
  std::shared_ptr<Client> client;                     // the sender; may be null in tests
  ClientCharge memory;                                // for `body`
  ClientCharge head_memory = {};                      // for the other texts
  std::shared_ptr<BodyMemory> body_memory = nullptr;  // may be given the memory of `body` after its use; may be null
  std::shared_ptr<const KeyRights> key = nullptr;     // set by the routes; null: the server has no keys
  std::shared_ptr<const ApiKeys> keys = nullptr;      // those of the server when `key` was found
  std::shared_ptr<Usage> usage = nullptr;             // set by the routes; null: nothing limits the request

  // Value of the first header of that lower-case name, empty when absent.
  std::string_view header(std::string_view lower_name) const;
  // Whether the method is one that changes nothing and needs no body: GET or HEAD.
  bool reads() const { return method == "GET" || method == "HEAD"; }
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // additional ones; names and values must be free of line breaks
  ClientCharge memory;  // for `body`, if it has been charged already
};

// The answer to one request.
// - Every method may be called from any thread, at most one of them at a time per exchange. None of them throws: if
//   memory runs out, the connection is closed.
// - Exactly one of respond() or beginStream() ... endStream() answers. An exchange that is destroyed unanswered sends
//   status 500, or breaks off the stream. After the client has disconnected, all calls are harmless.
// - Bytes that wait for the client are charged to it. An answer that exceeds the client's share is replaced by status
//   429 (503 if the server's share is exceeded); a stream is broken off.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // Adds headers to the answer, whatever it will be. Call it before the answer begins.
  virtual void addHeaders(const HttpHeaders& headers) = 0;
  virtual void respond(HttpResponse response) = 0;
  // Charges an answer to the client and returns it, or the refusal that respond() would send in its place.
  virtual HttpResponse charged(HttpResponse response) { return response; }
  // Sends the head of a streamed response.
  virtual void beginStream(int status, std::string_view content_type) = 0;
  // Queues bytes of the stream and returns at once. Returns false if the client has disconnected, or was dropped
  // because it reads too slowly (see HttpServerOptions::max_stream_backlog) or exceeded its memory share. The caller
  // must then stop.
  virtual bool write(std::string_view bytes) = 0;
  virtual void endStream() = 0;
  // Sets the callback, in place of an earlier one. It runs once when the client disconnects before the response is
  // complete: on an I/O thread, or at once in this call if the client already has. A client that closes its sending
  // side after the request counts as disconnected. The callback must be quick and must not throw.
  virtual void onAbort(std::function<void()> callback) = 0;
  // The record of the request for metrics and the access log; null if nothing is recorded.
  virtual std::shared_ptr<RequestRecord> record() const { return nullptr; }
};

// Called on an I/O thread with each complete request. Must return quickly.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // IPv4 or IPv6 address, or a name
  uint16_t port = 8000;            // 0: any free port
  int io_threads = 2;
  size_t max_header_bytes = size_t{16} << 10;
  size_t max_target_bytes = size_t{8} << 10;
  size_t max_body_bytes = size_t{8} << 20;
  // The limit for the body of one request instead, by its head; called on an I/O thread, must be quick; may be null.
  std::function<size_t(const HttpRequest& head)> body_limit;
  size_t max_connections = 1024;
  size_t max_connections_per_client = 256;  // trusted proxies have no such limit
  size_t reserved_connections = 32;         // beyond max_connections, only for reserved_paths
  // One that ends in '/' stands for all paths that begin with it.
  std::vector<std::string> reserved_paths = {"/v1/health/", "/health", "/ping"};
  // A stream whose client has left more than max_stream_backlog bytes unread for the whole of stream_backlog_timeout is
  // broken off with the next piece. A few large events in a row may exceed the size, so it is no limit without the
  // time.
  size_t max_stream_backlog = size_t{1} << 20;
  std::chrono::milliseconds stream_backlog_timeout{5'000};
  ClientMemoryLimits memory;
  uint64_t min_read_rate = size_t{64} << 10;         // bytes/s a client must read, after write_timeout; 0: no limit
  std::vector<std::string> cors_origins;             // see CorsPolicy
  std::vector<std::string> trusted_proxies;          // see TrustedProxies
  std::chrono::milliseconds tls_timeout{10'000};     // for the whole handshake
  std::chrono::milliseconds header_timeout{10'000};  // from a request's first byte to the end of its header
  std::chrono::milliseconds body_timeout{60'000};    // from the end of the header to the end of the body
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds write_timeout{30'000};   // without progress of a write
  std::shared_ptr<const TlsCertificates> tls;        // null: HTTP without TLS
  std::shared_ptr<HttpCounters> counters = std::make_shared<HttpCounters>();
  std::function<void(const UnroutedAnswer&)> on_unrouted;  // called on an I/O thread; must be quick; may be null
};

class HttpServer {
 public:
  // Throws Error for options that are not valid.
  HttpServer(HttpServerOptions options, HttpHandler handler);
  ~HttpServer();  // calls stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds, listens and starts the I/O threads. Throws Error that names host and port.
  void start();
  uint16_t port() const;
  // "http://127.0.0.1:8000", or https; IPv6 hosts in brackets.
  std::string url() const;

  // The clients of the requests.
  std::shared_ptr<ClientRegistry> clients() const;
  // Bytes charged to clients for complete requests, bodies that arrive, parsed requests and unread answers.
  size_t memoryUsed() const;
  // Frees memory that is kept for large bodies and was not used for a minute.
  void freeUnusedMemory();

  // From now on each answer ends its connection, and its header says so. Connections are still accepted.
  void closeAfterAnswers();
  // Accepts no more connections, except those that clients have opened already. They, and idle ones, are closed unless
  // a request begins to arrive very soon. A request that is not complete `arrivals` later is answered with status 503:
  // a client that sends the rest of it never, or byte by byte, must not keep the process from ending. Each connection
  // ends after its current response.
  void stopAccepting(std::chrono::milliseconds arrivals = kLastArrivals);
  static constexpr std::chrono::milliseconds kLastArrivals{2000};
  // Waits until every connection is closed; returns false on timeout. Call stopAccepting() first.
  bool waitUntilClosed(std::chrono::milliseconds timeout);
  // Closes everything and joins the threads. Idempotent.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace chorus::server
