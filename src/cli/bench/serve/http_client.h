// Sends HTTP/1.1 requests over TCP or TLS, many at a time, with streamed responses. No Boost type appears here.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus {

struct HttpTarget {
  std::string host;  // without brackets
  uint16_t port = 80;
  bool tls = false;
  std::string prefix;  // put before every path; empty, or begins with '/'
};
// Parses "http://host[:port][/prefix]", or the same with "https"; a trailing "/v1" or "/" is not a prefix. Throws
// Error(kInvalidArgument) that names --url.
HttpTarget parseHttpUrl(std::string_view url);

enum class CallEnd {
  kComplete,      // the whole response arrived
  kRefused,       // no connection, or no TLS session with a server of that name that the authorities vouch for
  kDisconnected,  // the connection ended before the response did
  kTimedOut,
  kBadResponse,  // not an HTTP response
  kStopped,      // ended by HttpClient::stop
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct ResponseHead {
  int status = 0;
  HttpHeaders headers;  // names are in lower case
};

// Receives one request's response. Called on the client's thread; onEnd is called once and last. No function may block
// or throw.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  virtual void onHead(const ResponseHead& head) = 0;
  virtual void onBody(std::string_view bytes) = 0;
  virtual void onEnd(CallEnd end, std::string_view reason) = 0;
};

class HttpClient {
 public:
  // `timeout` limits a whole request. ca_file: PEM file of the authorities that certificates of the server must come
  // from; empty: those that the system trusts. Throws Error when the host has no address, or that names --ca_cert.
  HttpClient(const HttpTarget& target, std::chrono::milliseconds timeout, const std::string& ca_file = "");
  ~HttpClient();  // calls stop()
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Sends the request on a new connection after `delay` and returns at once. method: "GET" or "POST". Thread-safe; a
  // handler may call it.
  void send(std::string_view method, std::string_view path, const HttpHeaders& headers, std::string body,
            std::shared_ptr<CallHandler> handler, std::chrono::milliseconds delay = {});
  // Cancels the running and the delayed requests; when it returns, every handler has received onEnd. A request that a
  // handler sends meanwhile ends as kStopped; nothing may be sent afterwards.
  void stop();

 private:
  class Impl;
  class Call;
  std::unique_ptr<Impl> impl_;
};

// Sends one request, waits and returns the body. Throws Error that names the URL unless the status is 200.
std::string fetchBody(HttpClient& client, const std::string& path, const HttpHeaders& headers);

}  // namespace chorus
