// Sends arbitrary bytes as a client. The server must answer or close, and must pass only bounded requests to its
// handler.
// parses: src/server/http/http_connection_read.cc src/server/http/header_checks.cc src/server/http/body_decoder.cc
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "fuzz/fuzz_target.h"
#include "server/http/header_checks.h"
#include "server/http/http.h"

namespace {

using namespace chorus::server;

HttpServerOptions options() {
  HttpServerOptions options;
  options.port = 0;
  options.io_threads = 1;
  options.max_header_bytes = 1024;
  options.max_target_bytes = 128;
  options.max_body_bytes = 512;
  options.memory = {.server = size_t{1} << 20, .client = size_t{1} << 18};
  return options;
}

void answer(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
  if (request.method.empty() || request.body.size() > 512 || request.path.size() + request.query.size() > 128 ||
      request.id.empty() || request.id.size() > 128) {
    std::abort();
  }
  if (request.path.find('?') != std::string::npos || (request.path[0] != '/' && request.path != "*")) std::abort();
  if (request.headers.size() > kMostHeaders || request.header("host").find(' ') != std::string_view::npos) std::abort();
  if (request.path == "/stream") {
    exchange->beginStream(200, "text/event-stream");
    exchange->write("data: " + request.query + "\n\n");
    exchange->endStream();
    return;
  }
  exchange->respond({.status = request.path == "/missing" ? 404 : 200, .body = request.body});
}

// Prints the failed call, so that a broken environment is not taken for a finding.
[[noreturn]] void failSystem(const char* call) {
  std::fprintf(stderr, "http_fuzz: %s failed: %s\n", call, std::strerror(errno));
  std::abort();
}

// Repeats a system call that libFuzzer's timer has interrupted.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Connects a socket. The kernel continues an interrupted connect(), so its end is awaited.
bool connects(int client, const sockaddr_in& address) {
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno != EINTR) return false;
  pollfd writable{.fd = client, .events = POLLOUT};
  uninterrupted([&] { return ::poll(&writable, 1, -1); });
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

// Returns a connected socket. A closed connection holds its pair of ports for a minute (TIME_WAIT), and one source
// address has only 28,000 ports, fewer than the inputs of a minute. So every 1,000 connections use another loopback
// address.
int connectTo(uint16_t port) {
  static uint32_t connections = 0;
  const uint32_t host = connections++ / 1000 % 0xffff;
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  if (client < 0) failSystem("socket");
  // A server that neither answers nor closes is a finding, so reading has a timeout.
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host);
  if (::bind(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) failSystem("bind");
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (!connects(client, address)) failSystem("connect");
  return client;
}

}  // namespace

// Every input opens a connection over the loopback interface. Its system calls and buffers (two of 16 KB, and the
// parser's) do not depend on the input's length.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 5000, .bytes = 256 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  static HttpServer* const server = [] {
    chorus::log::set_level(chorus::log::level::off);
    auto* started = new HttpServer(options(), answer);
    started->start();
    return started;
  }();
  const int client = connectTo(server->port());
  size_t sent = 0;
  while (sent < size) {
    const ssize_t n = uninterrupted([&] { return ::send(client, data + sent, size - sent, MSG_NOSIGNAL); });
    if (n <= 0) break;  // the server closed early
    sent += static_cast<size_t>(n);
  }
  ::shutdown(client, SHUT_WR);
  char buffer[4096];
  ssize_t n = 0;
  while ((n = uninterrupted([&] { return ::recv(client, buffer, sizeof buffer, 0); })) > 0) {
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) std::abort();
  // Closes with a reset, so that the ports are free for the next inputs.
  const linger none{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(client, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  ::close(client);
}
