// A server on a free port of loopback and a client of raw bytes, for tests of HTTP.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/testing/eventually.h"
#include "server/http/http.h"

namespace chorus::server {

// A blocking client over loopback. A read that gets neither bytes nor the end of the connection fails the test.
class SocketClient {
 public:
  explicit SocketClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval timeout{kPatience.count(), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~SocketClient() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void send(std::string_view text) { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  void finishSending() { shutdown(fd_, SHUT_WR); }
  // Reads until the marker has arrived or the connection ends. Returns the text up to the end of the marker.
  std::string readUntil(std::string_view marker) {
    while (text_.find(marker) == std::string::npos && readSome()) {
    }
    const size_t at = text_.find(marker);
    const size_t end = at == std::string::npos ? text_.size() : at + marker.size();
    const std::string out = text_.substr(0, end);
    text_.erase(0, end);
    return out;
  }
  std::string readAll() {
    while (readSome()) {
    }
    return std::move(text_);
  }
  // Reads one response with a Content-Length.
  std::string response() {
    std::string head = readUntil("\r\n\r\n");
    const size_t at = head.find("content-length: ");
    if (at == std::string::npos) return head;
    const size_t length = std::stoul(head.substr(at + 16));
    while (text_.size() < length && readSome()) {
    }
    head += text_.substr(0, length);
    text_.erase(0, length);
    return head;
  }
  int fd() const { return fd_; }

  bool connected = false;

 private:
  bool readSome() {
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    EXPECT_FALSE(n < 0 && errno == EAGAIN) << "the server neither sends nor closes";
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  int fd_;
  std::string text_;
};

// Server that echoes requests, except for paths that handle() treats differently.
class HttpTest : public ::testing::Test {
 protected:
  // The answer to /burst, which is streamed without a pause.
  static constexpr size_t kBurstPiece = size_t{3} << 20;
  static constexpr int kBurstPieces = 4;

  void start(HttpServerOptions options = {}) {
    options.port = 0;
    server = std::make_unique<HttpServer>(options, [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
      handle(std::move(request), std::move(exchange));
    });
    server->start();
  }
  ~HttpTest() override {
    stopping = true;
    for (auto& thread : threads) thread.join();
    {
      const std::lock_guard lock(mutex);
      held.clear();
    }
    server.reset();
  }

  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    if (request.path == "/hold") {
      exchange->onAbort([this] {
        aborted = true;
        ++aborts;
      });
      const std::lock_guard lock(mutex);
      held.push_back(std::move(exchange));
      ++requests;  // under the lock: a test that has seen it finds the exchange
      return;
    }
    ++requests;
    if (request.path == "/drop") return;
    if (request.path == "/stream" || request.path == "/flood") {
      const bool flood = request.path == "/flood";
      exchange->beginStream(200, "text/event-stream");
      exchange->onAbort([this] { aborted = true; });
      threads.emplace_back([this, flood, exchange] {
        const std::string piece = flood ? std::string(16384, 'x') : "data: x\n\n";
        for (int i = 0; (flood || i < 3) && !stopping; ++i) {
          if (!exchange->write(piece)) {
            write_failed = true;
            return;
          }
          std::this_thread::sleep_for(std::chrono::microseconds(flood ? 100 : 5000));
        }
        exchange->endStream();
      });
      return;
    }
    if (request.path == "/burst") {
      exchange->beginStream(200, "text/event-stream");
      threads.emplace_back([exchange] {
        const std::string piece(kBurstPiece, 'x');
        for (int i = 0; i < kBurstPieces && exchange->write(piece); ++i) {
        }
        exchange->endStream();
      });
      return;
    }
    exchange->respond(
        {.content_type = "text/plain",
         .body = request.method + " " + request.path + "|" + request.query + "|" + request.body + "|" + request.id});
  }

  static bool becomesTrue(const std::atomic<bool>& flag) {
    return eventually([&] { return flag.load(); });
  }

  // Sends a request that handle() does not answer, and waits until it has arrived.
  std::unique_ptr<SocketClient> hold() {
    const int before = requests;
    auto client = std::make_unique<SocketClient>(server->port());
    client->send("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(eventually([&] { return requests > before; }));
    return client;
  }
  std::string answerTo(const std::string& text) {
    SocketClient client(server->port());
    client.send(text);
    return client.response();
  }

  std::atomic<int> requests{0}, aborts{0};
  std::atomic<bool> aborted{false}, write_failed{false}, stopping{false};
  std::mutex mutex;  // guards held
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::vector<std::thread> threads;
  std::unique_ptr<HttpServer> server;
};

}  // namespace chorus::server
