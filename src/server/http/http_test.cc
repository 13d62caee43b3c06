// HTTP as clients see it: framing, streams, disconnects and the end of the server.
#include <fmt/format.h>

#include <condition_variable>
#include <stdexcept>

#include "base/error.h"
#include "server/http/testing/http_fixture.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;

TEST_F(HttpTest, KeepAliveAndRequestId) {
  start();
  SocketClient client(server->port());
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
  SocketClient client(server->port());
  std::string all;
  for (int i = 0; i < 20; ++i) all += "GET /n" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  client.send(all);
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(client.response().find("GET /n" + std::to_string(i) + "|"), std::string::npos);
  }
}

TEST_F(HttpTest, ChunkedBodyInPieces) {
  start();
  SocketClient client(server->port());
  for (const char* piece : {"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Enc", "oding: chunked\r\n\r\n5\r\nhel",
                            "lo\r\n3;ext=1", "\r\n wo\r\n0\r", "\n\r\n"}) {
    client.send(piece);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_NE(client.response().find("POST /c||hello wo|"), std::string::npos);
}

TEST_F(HttpTest, ExpectContinue) {
  start();
  SocketClient client(server->port());
  client.send("POST /e HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.readUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_NE(client.response().find("POST /e||ok|"), std::string::npos);
}

TEST_F(HttpTest, RefusalsHaveTheFormOfTheirApi) {
  start({.max_body_bytes = 1000});
  for (const char* size : {"1001", "x"}) {
    SocketClient client(server->port());
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
    SocketClient client(server->port());
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

TEST_F(HttpTest, StreamEndsAtOnceAndConnectionGoesOn) {
  start();
  SocketClient client(server->port());
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
  SocketClient client(server->port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = client.readAll();
  EXPECT_EQ(all.find("transfer-encoding"), std::string::npos);
  EXPECT_TRUE(all.ends_with("\r\n\r\ndata: x\n\ndata: x\n\ndata: x\n\n")) << all;
}

TEST_F(HttpTest, DisconnectIsNoticed) {
  start();
  {
    SocketClient client(server->port());
    client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(eventually([&] { return requests > 0; }));
  }
  EXPECT_TRUE(becomesTrue(aborted));
}

TEST_F(HttpTest, UnansweredExchangeIs500) {
  start();
  SocketClient client(server->port());
  client.send("GET /drop HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.response().starts_with("HTTP/1.1 500"));
}

TEST_F(HttpTest, ALeavingServerAnswersAndEndsEachConnection) {
  start();
  SocketClient idle(server->port());
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
  // The server waits 200 ms for the first byte of a request. A round in which the test itself needs most of that to
  // send shows nothing, and another one takes its place.
  constexpr milliseconds kInTime{100};
  int rounds = 0;
  for (int attempt = 0; attempt < 500 && rounds < 20; ++attempt) {
    start();
    std::vector<std::unique_ptr<SocketClient>> clients;
    for (int i = 0; i < 16; ++i) clients.push_back(std::make_unique<SocketClient>(server->port()));
    for (size_t i = 0; i < clients.size(); i += 2) clients[i]->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto stop_begun = std::chrono::steady_clock::now();
    server->stopAccepting();
    for (size_t i = 1; i < clients.size(); i += 2) clients[i]->send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    const bool in_time = std::chrono::steady_clock::now() - stop_begun < kInTime;
    rounds += in_time ? 1 : 0;
    for (size_t i = 0; i < clients.size(); ++i) {
      const auto begun = std::chrono::steady_clock::now();
      const std::string response = clients[i]->readAll();
      EXPECT_TRUE(!in_time || response.starts_with("HTTP/1.1 200 OK"))
          << "attempt " << attempt << ", client " << i << ", which waited "
          << std::chrono::duration<double>(std::chrono::steady_clock::now() - begun) / std::chrono::seconds(1)
          << " s, with " << requests << " requests served: " << response;
      clients[i]->close();
    }
    EXPECT_TRUE(server->waitUntilClosed(kPatience));
    server->stop();
  }
  EXPECT_EQ(rounds, 20) << "the test's own thread was held up too often";
}

TEST_F(HttpTest, DrainFinishesWhatRuns) {
  start();
  SocketClient idle(server->port()), busy(server->port());
  busy.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.response();
  EXPECT_TRUE(eventually([&] { return requests == 2; }));
  server->stopAccepting();
  EXPECT_EQ(idle.readAll(), "") << "idle connections are closed";
  EXPECT_FALSE(server->waitUntilClosed(milliseconds(100)));
  held[0]->respond({.body = "{}"});
  held.clear();
  const std::string response = busy.readAll();
  EXPECT_TRUE(response.starts_with("HTTP/1.1 200 OK")) << response;
  EXPECT_NE(response.find("connection: close"), std::string::npos);
  busy.close();
  EXPECT_TRUE(server->waitUntilClosed(kPatience));
  SocketClient late(server->port());
  late.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(late.readAll(), "");
}

TEST_F(HttpTest, ADisconnectIsNoticedBehindPipelinedBytes) {
  start();
  for (const size_t bytes : {size_t{1000}, size_t{100'000}, size_t{4'000'000}}) {
    aborted = false;
    auto client = hold();
    client->send(std::string(bytes, 'G'));
    EXPECT_FALSE(aborted);
    client.reset();
    EXPECT_TRUE(becomesTrue(aborted)) << bytes;
  }
}

TEST_F(HttpTest, HalfClosedClientsGetTheAnswerThatIsUnderWay) {
  start();
  for (int i = 0; i < 20; ++i) {
    SocketClient client(server->port());
    client.send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    client.response();
    client.finishSending();
    EXPECT_EQ(client.readAll(), "");
  }
  auto client = hold();
  client->finishSending();
  EXPECT_TRUE(becomesTrue(aborted)) << "an unanswered request is given up";
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
    SocketClient client(server->port());
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

TEST_F(HttpTest, AnswersWithoutTheHandlerAreReportedForTheClientBehindAProxy) {
  std::vector<std::string> reported;
  start({.cors_origins = {"https://a.example"},
         .trusted_proxies = {"127.0.0.1"},
         .on_unrouted = [&](const UnroutedAnswer& answer) {
           std::lock_guard lock(mutex);
           reported.emplace_back(answer.client);
         }});
  const std::string forwarded = "Host: x\r\nX-Forwarded-For: 203.0.113.9\r\n";
  answerTo("POST /x HTTP/1.1\r\n" + forwarded + "Content-Length: 99999999999\r\n\r\n");
  answerTo("OPTIONS /x HTTP/1.1\r\n" + forwarded +
           "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  answerTo("nonsense\r\n\r\n");
  std::lock_guard lock(mutex);
  EXPECT_EQ(reported, (std::vector<std::string>{"203.0.113.9", "203.0.113.9", "127.0.0.1"}));
}

TEST_F(HttpTest, AHandlerThatThrowsCostsOneRequest) {
  HttpServer throwing({.port = 0}, [](const HttpRequest& request, const std::shared_ptr<HttpExchange>&) {
    if (request.path == "/memory") throw std::bad_alloc();
    throw std::runtime_error("/srv/secret failed");
  });
  throwing.start();
  for (int i = 0; i < 5; ++i) {
    SocketClient client(throwing.port());
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
