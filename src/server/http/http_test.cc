#include "server/http/http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;

// A blocking client over loopback whose reads give up after five seconds.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    timeval timeout{5, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
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
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  int fd_;
  std::string text_;
};

// Server that echoes requests, except for paths that handle() treats differently.
class HttpTest : public ::testing::Test {
 protected:
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
    held.clear();
    server.reset();
  }

  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    ++requests;
    if (request.path == "/drop") return;
    if (request.path == "/hold") {
      exchange->onAbort([this] {
        aborted = true;
        ++aborts;
      });
      std::lock_guard lock(mutex);
      held.push_back(std::move(exchange));
      return;
    }
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
    exchange->respond(
        {.content_type = "text/plain",
         .body = request.method + " " + request.path + "|" + request.query + "|" + request.body + "|" + request.id});
  }

  static bool eventually(const std::atomic<bool>& flag) {
    for (int i = 0; i < 500 && !flag; ++i) std::this_thread::sleep_for(milliseconds(10));
    return flag;
  }

  // Sends a request that handle() does not answer, and waits until it has arrived.
  std::unique_ptr<Client> hold() {
    const int before = requests;
    auto client = std::make_unique<Client>(server->port());
    client->send("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    for (int i = 0; i < 500 && requests == before; ++i) std::this_thread::sleep_for(milliseconds(10));
    return client;
  }
  std::string answerTo(const std::string& text) {
    Client client(server->port());
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

TEST_F(HttpTest, KeepAliveAndRequestId) {
  start();
  Client client(server->port());
  client.send("GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-1\r\n\r\n");
  std::string first = client.response();
  EXPECT_TRUE(first.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(first.find("x-request-id: mine-1\r\n"), std::string::npos);
  EXPECT_NE(first.find("GET /a|b=c||mine-1"), std::string::npos);
  client.send("POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nX-Request-Id: bad id\r\n\r\nabc");
  const std::string second = client.response();
  EXPECT_NE(second.find("POST /p||abc|req-"), std::string::npos);
  client.send("HEAD /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string head = client.readAll();
  EXPECT_NE(head.find("content-length: "), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << "no body after HEAD";
}

TEST_F(HttpTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client(server->port());
  std::string all;
  for (int i = 0; i < 20; ++i) all += "GET /n" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  client.send(all);
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(client.response().find("GET /n" + std::to_string(i) + "|"), std::string::npos);
  }
}

TEST_F(HttpTest, ChunkedBodyInPieces) {
  start();
  Client client(server->port());
  for (const char* piece : {"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Enc", "oding: chunked\r\n\r\n5\r\nhel",
                            "lo\r\n3;ext=1", "\r\n wo\r\n0\r", "\n\r\n"}) {
    client.send(piece);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_NE(client.response().find("POST /c||hello wo|"), std::string::npos);
}

TEST_F(HttpTest, ExpectContinue) {
  start();
  Client client(server->port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.readUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_NE(client.response().find("POST /e||ok|"), std::string::npos);
}

TEST_F(HttpTest, RefusalsHaveTheFormOfTheirApi) {
  start({.max_body_bytes = 1000});
  for (const char* size : {"1001", "x"}) {
    Client client(server->port());
    client.send(
        std::string("POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nContent-Length: ") +
        size + "\r\n\r\n");
    const std::string response = client.response();
    const bool readable = *size != 'x';  // a head that is not well-formed has no path
    EXPECT_EQ(response.find("\r\nrequest-id: mine\r\n") != std::string::npos, readable) << response;
    EXPECT_EQ(response.find(R"({"type":"error","error":{"type":"request_too_large","message":)") != std::string::npos,
              readable);
    EXPECT_EQ(response.find(R"("request_id":"mine"})") != std::string::npos, readable);
  }
}

TEST_F(HttpTest, TheHeadOfARequestDecidesHowLargeItsBodyMayBe) {
  start({.max_body_bytes = 10,
         .body_limit = [](const HttpRequest& head) -> size_t { return head.header("x-large") == "yes" ? 100 : 10; }});
  const auto statusOf = [&](const std::string& header, size_t bytes, bool chunked) {
    Client client(server->port());
    const std::string body(bytes, 'b');
    client.send(
        "POST /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header +
        (chunked ? "Transfer-Encoding: chunked\r\n\r\n" + fmt::format("{:x}", bytes) + "\r\n" + body + "\r\n0\r\n\r\n"
                 : "Content-Length: " + std::to_string(bytes) + "\r\n\r\n" + body));
    return client.response().substr(9, 3);
  };
  for (const bool chunked : {false, true}) {
    EXPECT_EQ(statusOf("", 10, chunked), "200");
    EXPECT_EQ(statusOf("", 11, chunked), "413");
    EXPECT_EQ(statusOf("X-Large: yes\r\n", 100, chunked), "200");
    EXPECT_EQ(statusOf("X-Large: yes\r\n", 101, chunked), "413");
  }
}

TEST_F(HttpTest, Limits) {
  start({.max_header_bytes = 2048, .max_target_bytes = 100, .max_body_bytes = 1000});
  const auto status = [&](const std::string& text) {
    Client client(server->port());
    client.send(text);
    const std::string response = client.response();
    EXPECT_NE(response.find("connection: close"), std::string::npos);
    EXPECT_NE(response.find(R"({"error":{"message":)"), std::string::npos) << response;
    EXPECT_EQ(client.readAll(), "");
    return response.size() > 12 ? response.substr(9, 3) : "none";
  };
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n"), "413");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x')), "413");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x')),
            "413");
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(4000, 'x') + "\r\n\r\n"), "431");
  EXPECT_EQ(status("GET /" + std::string(200, 'x') + " HTTP/1.1\r\nHost: x\r\n\r\n"), "414");
  EXPECT_EQ(status("nonsense\r\n\r\n"), "400");
  EXPECT_EQ(status("GET / HTTP/3.0\r\n\r\n"), "505");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n"), "400");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "400");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), "501");
  EXPECT_EQ(status("POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n"), "417");
  EXPECT_EQ(requests, 0);
}

TEST_F(HttpTest, Timeouts) {
  start({.header_timeout = milliseconds(100), .body_timeout = milliseconds(100), .idle_timeout = milliseconds(200)});
  Client header(server->port());
  header.send("GET / HTT");
  EXPECT_TRUE(header.readAll().starts_with("HTTP/1.1 408"));
  Client body(server->port());
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_TRUE(body.readAll().starts_with("HTTP/1.1 408"));
  Client idle(server->port());
  EXPECT_EQ(idle.readAll(), "");
}

TEST_F(HttpTest, StreamEndsAtOnceAndConnectionGoesOn) {
  start();
  Client client(server->port());
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string head = client.readUntil("\r\n\r\n");
  EXPECT_NE(head.find("transfer-encoding: chunked"), std::string::npos);
  const std::string body = client.readUntil("0\r\n\r\n");
  EXPECT_EQ(body, "9\r\ndata: x\n\n\r\n9\r\ndata: x\n\n\r\n9\r\ndata: x\n\n\r\n0\r\n\r\n");
  client.send("GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.response().find("GET /again|"), std::string::npos);
  EXPECT_FALSE(aborted);
}

TEST_F(HttpTest, OldClientsStreamEndsWithTheConnection) {
  start();
  Client client(server->port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = client.readAll();
  EXPECT_EQ(all.find("transfer-encoding"), std::string::npos);
  EXPECT_TRUE(all.ends_with("\r\n\r\ndata: x\n\ndata: x\n\ndata: x\n\n")) << all;
}

TEST_F(HttpTest, DisconnectIsNoticed) {
  start();
  {
    Client client(server->port());
    client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 500 && requests == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(eventually(aborted));
}

TEST_F(HttpTest, SlowReaderIsDropped) {
  start({.max_stream_backlog = 65536});
  Client client(server->port());
  const int small = 4096;
  setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(eventually(write_failed));
  EXPECT_TRUE(eventually(aborted));
}

TEST_F(HttpTest, UnansweredExchangeIs500) {
  start();
  Client client(server->port());
  client.send("GET /drop HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.response().starts_with("HTTP/1.1 500"));
}

TEST_F(HttpTest, ALeavingServerAnswersAndEndsEachConnection) {
  start();
  Client idle(server->port());
  idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(idle.response().find("connection: keep-alive"), std::string::npos);
  server->closeAfterAnswers();
  idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string last = idle.readAll();
  EXPECT_TRUE(last.starts_with("HTTP/1.1 200 OK")) << last;
  EXPECT_NE(last.find("connection: close"), std::string::npos);
  const std::string fresh = answerTo("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(fresh.starts_with("HTTP/1.1 200 OK")) << fresh;
  EXPECT_NE(fresh.find("connection: close"), std::string::npos);
}

// A client that connects just before the server stops is answered, whether or not its request has arrived by then.
TEST_F(HttpTest, ConnectionsThatWereOpenedBeforeTheStopAreAnswered) {
  for (int round = 0; round < 20; ++round) {
    start();
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 16; ++i) clients.push_back(std::make_unique<Client>(server->port()));
    for (size_t i = 0; i < clients.size(); i += 2) clients[i]->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    server->stopAccepting();
    for (size_t i = 1; i < clients.size(); i += 2) clients[i]->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    for (const auto& client : clients) {
      const std::string response = client->readAll();
      EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK")) << response;
      client->close();
    }
    EXPECT_TRUE(server->waitUntilClosed(milliseconds(5000)));
    server->stop();
  }
}

TEST_F(HttpTest, DrainFinishesWhatRuns) {
  start();
  Client idle(server->port()), busy(server->port());
  busy.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.response();
  for (int i = 0; i < 500 && requests < 2; ++i) std::this_thread::sleep_for(milliseconds(10));
  server->stopAccepting();
  EXPECT_EQ(idle.readAll(), "") << "idle connections are closed";
  EXPECT_FALSE(server->waitUntilClosed(milliseconds(100)));
  held[0]->respond({.body = "{}"});
  held.clear();
  const std::string response = busy.readAll();
  EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK")) << response;
  EXPECT_NE(response.find("connection: close"), std::string::npos);
  busy.close();
  EXPECT_TRUE(server->waitUntilClosed(milliseconds(5000)));
  Client late(server->port());
  late.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(late.readAll(), "");
}

TEST_F(HttpTest, IdleConnectionsGiveWay) {
  start({.max_connections = 20, .max_connections_per_client = 10});
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 50; ++i) {
    idle.push_back(std::make_unique<Client>(server->port()));
    if (i % 2) idle.back()->send("GET / HTTP/1.1\r\n");  // an incomplete head
    ASSERT_TRUE(answerTo("GET /x HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200")) << i;
  }
  EXPECT_EQ(idle[0]->readAll(), "") << "the oldest was closed";
}

TEST_F(HttpTest, BeyondTheLimitTheReserveTellsTheHealth) {
  start({.max_connections = 4, .reserved_connections = 2, .reserved_prefix = "/v1/health/"});
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < 4; ++i) busy.push_back(hold());
  const std::string health = answerTo("GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(health.starts_with("HTTP/1.1 200")) << health;
  EXPECT_NE(health.find("connection: close"), std::string::npos);
  const std::string other = answerTo("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
  EXPECT_TRUE(other.starts_with("HTTP/1.1 503")) << other;
  EXPECT_NE(other.find(R"({"error":{"message":)"), std::string::npos);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<Client>(server->port()));
  EXPECT_TRUE(answerTo("GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(aborts, 0) << "no running request gave way";
  busy.clear();
  for (int i = 0; i < 500 && aborts < 4; ++i) std::this_thread::sleep_for(milliseconds(10));
  {
    std::lock_guard lock(mutex);
    held.clear();
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(answerTo("GET /y HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200")) << "places are free again";
}

TEST_F(HttpTest, ADisconnectIsNoticedBehindPipelinedBytes) {
  start();
  for (const size_t bytes : {size_t{1000}, size_t{100'000}, size_t{4'000'000}}) {
    aborted = false;
    auto client = hold();
    client->send(std::string(bytes, 'G'));
    EXPECT_FALSE(aborted);
    client.reset();
    EXPECT_TRUE(eventually(aborted)) << bytes;
  }
}

TEST_F(HttpTest, TooMuchPipelinedInputEndsTheConnectionAfterTheAnswer) {
  start();
  auto client = hold();
  std::string more;
  for (int i = 0; i < 4000; ++i) more += "GET /n HTTP/1.1\r\nHost: x\r\n\r\n";
  client->send(more);
  std::this_thread::sleep_for(milliseconds(400));
  {
    std::lock_guard lock(mutex);
    held[0]->respond({.body = "{}"});
  }
  const std::string all = client->readAll();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200")) << all;
  EXPECT_NE(all.find("connection: close"), std::string::npos);
  EXPECT_EQ(requests, 1);
}

TEST_F(HttpTest, HalfClosedClientsGetTheAnswerThatIsUnderWay) {
  start();
  for (int i = 0; i < 20; ++i) {
    Client client(server->port());
    client.send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    client.response();
    client.finishSending();
    EXPECT_EQ(client.readAll(), "");
  }
  auto client = hold();
  client->finishSending();
  EXPECT_TRUE(eventually(aborted)) << "an unanswered request is given up";
}

TEST_F(HttpTest, TrailersAreNoHeaders) {
  start();
  const std::string answer = answerTo(
      "POST /t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Request-Id: trailer\r\n"
      "Content-Type: text/plain\r\n\r\n");
  EXPECT_NE(answer.find("POST /t||abc|req-"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("trailer"), std::string::npos);
}

TEST_F(HttpTest, OriginsNeedLeave) {
  start({.cors_origins = {"https://a.example"}});
  const std::string evil = answerTo("GET /x HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n\r\n");
  EXPECT_TRUE(evil.starts_with("HTTP/1.1 403")) << evil;
  EXPECT_EQ(evil.find("access-control"), std::string::npos);
  EXPECT_EQ(requests, 0);
  for (const char* path : {"/x", "/stream", "/bad path"}) {
    Client client(server->port());
    client.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n\r\n");
    const std::string head = client.readUntil("\r\n\r\n");
    if (std::string_view(path) == "/bad path") continue;
    EXPECT_NE(head.find("access-control-allow-origin: https://a.example\r\n"), std::string::npos) << head;
    EXPECT_NE(head.find("vary: Origin\r\n"), std::string::npos);
  }
  const std::string preflight = answerTo(
      "OPTIONS /x HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: content-type\r\n\r\n");
  EXPECT_TRUE(preflight.starts_with("HTTP/1.1 204")) << preflight;
  EXPECT_NE(preflight.find("access-control-allow-headers: content-type\r\n"), std::string::npos);
  EXPECT_EQ(preflight.find("content-length"), std::string::npos);
  EXPECT_EQ(requests, 2);
}

TEST_F(HttpTest, BodiesAreChargedAsTheyArrive) {
  start({.max_connections = 100, .memory = {.server = 16 << 20, .client = 8 << 20}});
  std::vector<std::unique_ptr<Client>> clients;
  const std::string head = "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n";
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->send(head);
  }
  EXPECT_TRUE(answerTo("GET /x HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(server->memoryUsed(), 0u) << "a stated length takes nothing";
  int refused = 0;
  for (auto& client : clients) {
    for (int i = 0; i < 16; ++i) client->send(std::string(65536, 'x'));
  }
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(server->memoryUsed(), size_t{8} << 20);
  EXPECT_NE(answerTo("POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc").find("POST /s||abc|"),
            std::string::npos)
      << "a small body has room beside large ones";
  for (auto& client : clients) {
    client->finishSending();
    const std::string answer = client->readAll();
    refused += answer.starts_with("HTTP/1.1 429");
  }
  EXPECT_GE(refused, 10);
  clients.clear();
  for (int i = 0; i < 500 && server->memoryUsed() > 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(server->memoryUsed(), 0u);
}

TEST_F(HttpTest, AnUnreadAnswerEnds) {
  HttpServerOptions options{.memory = {.server = 64 << 20, .client = 32 << 20}, .min_read_rate = 1 << 20};
  options.write_timeout = milliseconds(500);
  start(options);
  auto client = std::make_unique<Client>(server->port());
  const int small = 4096;
  setsockopt(client->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  client->send("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  for (int i = 0; i < 500 && requests == 0; ++i) std::this_thread::sleep_for(milliseconds(10));
  {
    std::lock_guard lock(mutex);
    held[0]->respond({.body = std::string(20 << 20, 'x')});
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_GT(server->memoryUsed(), size_t{10} << 20);
  std::string buffer(4096, 0);
  for (int i = 0; i < 30; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    if (recv(client->fd(), buffer.data(), buffer.size(), MSG_DONTWAIT) == 0) break;
  }
  EXPECT_EQ(server->memoryUsed(), 0u) << "4 KB now and then keep nothing";
  const std::string answer = answerTo("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: bad\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400"));
}

TEST_F(HttpTest, AnAnswerBeyondItsShareIsRefused) {
  start({.memory = {.server = 16 << 20, .client = 8 << 20}});
  auto client = hold();
  {
    std::lock_guard lock(mutex);
    held[0]->respond({.body = std::string(7 << 20, 'x')});
  }
  EXPECT_TRUE(client->response().starts_with("HTTP/1.1 429"));
}

TEST_F(HttpTest, AHandlerThatThrowsCostsOneRequest) {
  HttpServer throwing({.port = 0}, [](const HttpRequest& request, const std::shared_ptr<HttpExchange>&) {
    if (request.path == "/memory") throw std::bad_alloc();
    throw std::runtime_error("/srv/secret failed");
  });
  throwing.start();
  for (int i = 0; i < 5; ++i) {
    Client client(throwing.port());
    client.send("GET /memory HTTP/1.1\r\nHost: x\r\n\r\nGET /other HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(client.response().starts_with("HTTP/1.1 503"));
    const std::string other = client.response();
    EXPECT_TRUE(other.starts_with("HTTP/1.1 500"));
    EXPECT_EQ(other.find("secret"), std::string::npos);
  }
}

TEST_F(HttpTest, AddressesAndFaults) {
  start();
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(server->port()));
  HttpServer taken({.port = server->port()}, [](HttpRequest, std::shared_ptr<HttpExchange>) {});
  EXPECT_THROW(taken.start(), Error);
  HttpServer nowhere({.host = "203.0.113.1", .port = 0}, [](HttpRequest, std::shared_ptr<HttpExchange>) {});
  EXPECT_THROW(nowhere.start(), Error);
}

}  // namespace
}  // namespace chorus::server
