// HTTP/1.1 requests over TCP, many at a time, whose answers come in pieces. No Boost type appears here.
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
  std::string prefix;  // of every path; empty, or begins with '/'
};
// "http://host[:port][/prefix]"; a trailing "/v1" or "/" is no prefix. Throws Error(kInvalidArgument) that names --url.
HttpTarget parseHttpUrl(std::string_view url);

enum class CallEnd {
  kComplete,      // the whole answer came
  kRefused,       // no connection
  kDisconnected,  // it broke off before the answer's end
  kTimedOut,
  kBadResponse,  // no HTTP
  kStopped,      // by HttpClient::stop
};

// One request's answer. Called on the client's thread, onEnd last and once; none may block or throw.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  virtual void onStatus(int status) = 0;
  virtual void onBody(std::string_view bytes) = 0;
  virtual void onEnd(CallEnd end, std::string_view reason) = 0;
};

class HttpClient {
 public:
  // timeout: of a whole request. Throws Error when the host has no address.
  HttpClient(const HttpTarget& target, std::chrono::milliseconds timeout);
  ~HttpClient();  // as stop()
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Headers = std::vector<std::pair<std::string, std::string>>;
  // Sends the request on a connection of its own and returns at once. method: "GET" or "POST". Thread-safe.
  void send(std::string_view method, std::string_view path, const Headers& headers, std::string body,
            std::shared_ptr<CallHandler> handler);
  // Breaks off what is under way; every handler has had its end afterwards. Nothing may be sent any more.
  void stop();

 private:
  class Impl;
  class Call;
  std::unique_ptr<Impl> impl_;
};

// Sends one request and waits. Throws Error that names the URL unless the status is 200; the body.
std::string fetchBody(HttpClient& client, const std::string& path, const HttpClient::Headers& headers);

}  // namespace chorus
