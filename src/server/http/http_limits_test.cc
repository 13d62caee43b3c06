// Limits of the HTTP server: sizes, times, connections and memory.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <condition_variable>
#include <stdexcept>

#include "base/error.h"
#include "server/http/testing/http_fixture.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;

class HttpLimitsTest : public HttpTest {};

TEST_F(HttpLimitsTest, Limits) {
  start({.max_header_bytes = 2048, .max_target_bytes = 100, .max_body_bytes = 1000});
  const auto status = [&](const std::string& text) {
    SocketClient client(server->port());
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

TEST_F(HttpLimitsTest, Timeouts) {
  start({.header_timeout = milliseconds(100), .body_timeout = milliseconds(100)});
  SocketClient header(server->port());
  header.send("GET / HTT");
  EXPECT_TRUE(header.readAll().starts_with("HTTP/1.1 408"));
  SocketClient body(server->port());
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_TRUE(body.readAll().starts_with("HTTP/1.1 408"));
  // A server of its own, because the clients above might be idle for as long before they send.
  start({.idle_timeout = milliseconds(200)});
  SocketClient idle(server->port());
  EXPECT_EQ(idle.readAll(), "");
}

TEST_F(HttpLimitsTest, TheStopMayLeaveLessTimeToArrive) {
  constexpr milliseconds kArrivals{300};
  bool sooner = false;
  for (int attempt = 0; attempt < 5 && !sooner; ++attempt) {
    const auto counters = std::make_shared<HttpCounters>();
    start({.counters = counters});
    SocketClient half(server->port());
    half.send("GET / HTT");
    EXPECT_TRUE(eventually([&] { return counters->received_bytes == 9; }));
    const auto begun = std::chrono::steady_clock::now();
    server->stopAccepting(kArrivals);
    EXPECT_TRUE(half.readAll().starts_with("HTTP/1.1 503"));
    const auto waited = std::chrono::steady_clock::now() - begun;
    EXPECT_GE(waited, kArrivals);
    sooner = waited < HttpServer::kLastArrivals;
    server->stop();
  }
  EXPECT_TRUE(sooner);
}

TEST_F(HttpLimitsTest, ARequestThatArrivesDuringTheStopMustBeCompleteSoon) {
  const auto counters = std::make_shared<HttpCounters>();
  start({.counters = counters});
  const std::string head = "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
  constexpr milliseconds kInTime{100};  // half of what the server waits for the first byte of a request
  auto running = hold();
  const uint64_t before = counters->received_bytes;
  SocketClient header(server->port()), body(server->port()), dripping(server->port()), late(server->port()),
      completed(server->port());
  header.send("GET / HTT");
  for (SocketClient* client : {&body, &completed}) client->send(head + "a");
  const std::string long_head = "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
  dripping.send(long_head);
  const size_t sent = 9 + 2 * (head.size() + 1) + long_head.size();
  EXPECT_TRUE(eventually([&] { return counters->received_bytes == before + sent; }));
  const auto begun = std::chrono::steady_clock::now();
  server->stopAccepting();
  late.send("GET / HTT");
  completed.send("bcde");
  // Else the test's own thread was held up, and the server may have given these two up.
  const bool in_time = std::chrono::steady_clock::now() - begun < kInTime;
  const std::string whole = completed.response();
  EXPECT_TRUE(!in_time || whole.starts_with("HTTP/1.1 200")) << whole;
  // The server then has answered, and still reads.
  while (std::chrono::steady_clock::now() - begun < milliseconds(3000)) {
    dripping.send("a");
    std::this_thread::sleep_for(milliseconds(100));
  }
  for (SocketClient* client : {&header, &body, &dripping, &late}) {
    const std::string answer = client->readAll();
    if (client == &late && !in_time) continue;
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 503")) << answer;
    EXPECT_NE(answer.find("connection: close"), std::string::npos);
    EXPECT_NE(answer.find("The server is shutting down."), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, HttpServerOptions().body_timeout / 2)
      << "they were given up because of the stop";
  EXPECT_FALSE(aborted);
  held[0]->respond({.body = "{}"});
  held.clear();
  EXPECT_TRUE(running->response().starts_with("HTTP/1.1 200")) << "what runs has all the time";
}

TEST_F(HttpLimitsTest, SlowReaderIsDropped) {
  start({.max_stream_backlog = 65536, .stream_backlog_timeout = milliseconds(50)});
  SocketClient client(server->port());
  const int small = 4096;
  setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(becomesTrue(write_failed));
  EXPECT_TRUE(becomesTrue(aborted));
}

TEST_F(HttpLimitsTest, AReaderGetsAStreamOfLargePieces) {
  start();
  SocketClient client(server->port());
  client.send("GET /burst HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = client.readAll();
  EXPECT_TRUE(all.ends_with("\r\n0\r\n\r\n"));
  EXPECT_EQ(std::ranges::count(all.substr(all.find("\r\n\r\n")), 'x'), kBurstPiece * kBurstPieces);
}

TEST_F(HttpLimitsTest, IdleConnectionsGiveWay) {
  start({.max_connections = 20, .max_connections_per_client = 10});
  std::vector<std::unique_ptr<SocketClient>> idle;
  for (int i = 0; i < 50; ++i) {
    idle.push_back(std::make_unique<SocketClient>(server->port()));
    if (i % 2) idle.back()->send("GET / HTTP/1.1\r\n");  // an incomplete head
    ASSERT_TRUE(answerTo("GET /x HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200")) << i;
  }
  EXPECT_EQ(idle[0]->readAll(), "") << "the oldest was closed";
}

// A connection that is chosen for eviction may be about to handle its request. It must not stay open uncounted.
TEST_F(HttpLimitsTest, ARequestThatBeginsDuringAnEvictionDoesNotExceedTheLimit) {
  std::atomic<bool> arrived{false}, go_on{false};
  const auto counters = std::make_shared<HttpCounters>();
  start({.io_threads = 2,
         .body_limit =
             [&](const HttpRequest&) {
               arrived = true;
               becomesTrue(go_on);
               return size_t{1000};
             },
         .max_connections_per_client = 1,
         .counters = counters});
  SocketClient first(server->port());
  first.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(becomesTrue(arrived));
  const SocketClient second(server->port());
  EXPECT_TRUE(eventually([&] { return counters->evicted > 0; }));
  EXPECT_EQ(counters->evicted, 1u);
  go_on = true;
  EXPECT_EQ(first.readAll(), "");
  EXPECT_TRUE(eventually([&] { return counters->open == 1; }));
  EXPECT_EQ(requests, 0);
}

TEST_F(HttpLimitsTest, BeyondTheLimitTheReserveTellsTheHealth) {
  const auto counters = std::make_shared<HttpCounters>();
  start({.max_connections = 4, .reserved_connections = 2, .counters = counters});
  std::vector<std::unique_ptr<SocketClient>> busy;
  for (int i = 0; i < 4; ++i) busy.push_back(hold());
  // The answer that is sent when the reserve is free again: its client has an answer before the server has ended it.
  const auto reserveAnswers = [&](const std::string& request) {
    EXPECT_TRUE(eventually([&] { return counters->open == 4; }));
    return answerTo(request);
  };
  const std::string health = reserveAnswers("GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(health.starts_with("HTTP/1.1 200")) << health;
  EXPECT_NE(health.find("connection: close"), std::string::npos);
  for (const char* path : {"/v1/health/ready", "/health", "/health?x=1", "/ping"}) {
    EXPECT_TRUE(reserveAnswers(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path)).starts_with("HTTP/1.1 200"))
        << path;
  }
  for (const char* path : {"/healthy", "/health/", "/ping/x", "/version", "/v1/health"}) {
    EXPECT_TRUE(reserveAnswers(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path)).starts_with("HTTP/1.1 503"))
        << path;
  }
  const std::string other = reserveAnswers("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
  EXPECT_TRUE(other.starts_with("HTTP/1.1 503")) << other;
  EXPECT_NE(other.find(R"({"error":{"message":)"), std::string::npos);
  std::vector<std::unique_ptr<SocketClient>> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(std::make_unique<SocketClient>(server->port()));
  EXPECT_TRUE(answerTo("GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_EQ(aborts, 0) << "no running request gave way";
  busy.clear();
  EXPECT_TRUE(eventually([&] { return aborts == 4; }));
  {
    std::lock_guard lock(mutex);
    held.clear();
  }
  EXPECT_TRUE(eventually([&] { return answerTo("GET /y HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"); }))
      << "places are free again";
}

TEST_F(HttpLimitsTest, TooMuchPipelinedInputEndsTheConnectionAfterTheAnswer) {
  const auto counters = std::make_shared<HttpCounters>();
  start({.counters = counters});
  auto client = hold();
  std::string more;
  for (int i = 0; i < 5000; ++i) more += "GET /n HTTP/1.1\r\nHost: x\r\n\r\n";
  client->send(more);
  // It reads to the end only once it has begun to drop input.
  EXPECT_TRUE(eventually([&] { return counters->received_bytes > more.size(); }));
  {
    std::lock_guard lock(mutex);
    held[0]->respond({.body = "{}"});
  }
  const std::string all = client->readAll();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200")) << all;
  EXPECT_NE(all.find("connection: close"), std::string::npos);
  EXPECT_EQ(requests, 1);
}

TEST_F(HttpLimitsTest, BodiesAreChargedAsTheyArrive) {
  start({.max_connections = 100, .memory = {.server = 16 << 20, .client = 8 << 20}});
  std::vector<std::unique_ptr<SocketClient>> clients;
  const std::string head = "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n";
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<SocketClient>(server->port()));
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
  EXPECT_TRUE(eventually([&] { return server->memoryUsed() == 0; }));
}

TEST_F(HttpLimitsTest, ARequestThatWaitsKeepsNoReadBuffer) {
  start();
  constexpr int kRequests = 50;
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const std::string body(100'000, 'b');
  const std::string text =
      "POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  std::vector<std::unique_ptr<SocketClient>> waiting;
  const size_t before = used();
  for (int i = 0; i < kRequests; ++i) {
    waiting.push_back(std::make_unique<SocketClient>(server->port()));
    waiting.back()->send(text);
  }
  // The handler drops the body.
  EXPECT_TRUE(eventually([&] { return requests == kRequests; }));
  EXPECT_TRUE(eventually([&] { return used() < before + kRequests * (size_t{16} << 10); })) << used() - before;
}

TEST_F(HttpLimitsTest, AnUnreadAnswerEnds) {
  HttpServerOptions options{.memory = {.server = 64 << 20, .client = 32 << 20}, .min_read_rate = 1 << 20};
  constexpr milliseconds kWriteTimeout{500};
  options.write_timeout = kWriteTimeout;
  start(options);
  auto client = std::make_unique<SocketClient>(server->port());
  const int small = 4096;
  setsockopt(client->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  client->send("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return requests > 0; }));
  const auto begun = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(mutex);
    held[0]->respond({.body = std::string(20 << 20, 'x')});
  }
  std::this_thread::sleep_for(milliseconds(50));
  const size_t unread = server->memoryUsed();
  // Later the answer may have ended already.
  if (std::chrono::steady_clock::now() - begun < kWriteTimeout) {
    EXPECT_GT(unread, size_t{10} << 20);
  }
  std::string buffer(4096, 0);
  EXPECT_TRUE(eventually([&] {
    std::this_thread::sleep_for(milliseconds(50));
    (void)!recv(client->fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return server->memoryUsed() == 0;
  })) << "4 KB now and then keep nothing";
  const std::string answer = answerTo("POST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: bad\r\n\r\n");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 400"));
}

TEST_F(HttpLimitsTest, ASmallRequestNeedsNoShare) {
  start({.memory = {.server = 1 << 20, .client = 1 << 20}});
  ClientCharge large(server->clients()->find("127.0.0.1"));
  ASSERT_EQ(large.resize(large.client()->memory().large.limit()), MemoryAnswer::kGranted);
  std::vector<ClientCharge> charges;
  do {
    charges.emplace_back(large.client());
  } while (charges.back().resize(64) == MemoryAnswer::kGranted);
  EXPECT_TRUE(answerTo("GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(answerTo("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx").starts_with("HTTP/1.1 429"));
  const std::string filler(8000, 'f');
  EXPECT_TRUE(answerTo("GET / HTTP/1.1\r\nHost: x\r\nFiller: " + filler + "\r\n\r\n").starts_with("HTTP/1.1 429"));
}

TEST_F(HttpLimitsTest, AnAnswerBeyondItsShareIsRefused) {
  start({.memory = {.server = 16 << 20, .client = 8 << 20}});
  auto client = hold();
  {
    std::lock_guard lock(mutex);
    HttpResponse granted = held[0]->charged({.body = std::string(1 << 20, 'x')});
    EXPECT_EQ(granted.status, 200);
    EXPECT_GE(server->memoryUsed(), granted.body.size());
    granted.memory.release();
    const HttpResponse refused = held[0]->charged({.body = std::string(7 << 20, 'x')});
    EXPECT_EQ(refused.status, 429) << "known before it is sent";
    held[0]->respond({.body = std::string(7 << 20, 'x')});
  }
  EXPECT_TRUE(client->response().starts_with("HTTP/1.1 429"));
}

}  // namespace
}  // namespace chorus::server
