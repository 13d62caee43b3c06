// One connection whose handlers run when the test says so, and not while it prepares what they find.
#include "server/http/http_connection.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>

#include "server/http/testing/http_fixture.h"

namespace chorus::server {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using Phase = ConnectionPhase;

class HttpConnectionTest : public ::testing::Test {
 protected:
  HttpConnectionTest() : acceptor(io, {asio::ip::address_v4::loopback(), 0}) {}
  ~HttpConnectionTest() override {
    exchanges.clear();
    requests.clear();
    if (connection) connection->abort();
    client.reset();
    connection.reset();
    runUntil([&] { return weak.expired(); });
  }

  // Opens the connection. Nothing of it has run afterwards.
  void open(HttpServerOptions more = {}) {
    options = std::move(more);
    client = std::make_unique<SocketClient>(acceptor.local_endpoint().port());
    ConnectionStream::Socket socket(asio::make_strand(io));
    acceptor.accept(socket);
    server_end = socket.native_handle();
    connection =
        std::make_shared<HttpConnection>(ConnectionStream(std::move(socket), nullptr),
                                         HttpConnection::Peer{.address = "127.0.0.1", .client = peer}, context);
    weak = connection;
    connection->start();
  }
  template <typename Condition>
  bool runUntil(Condition condition) {
    return eventually([&] {
      io.restart();
      while (!condition() && io.poll() > 0) {
      }
      return condition();
    });
  }
  bool runUntilPhase(Phase phase) {
    return runUntil([&] { return connection->view().phase == phase; });
  }
  // Runs the connection until it is closed and nothing refers to it.
  bool ends() {
    connection.reset();
    return runUntil([&] { return weak.expired(); });
  }
  // Sends bytes, and waits until all of them can be read at once. Handlers do not run meanwhile.
  void deliver(const std::string& bytes) {
    client->send(bytes);
    int ready = 0;
    ASSERT_TRUE(eventually([&] {
      ioctl(server_end, FIONREAD, &ready);
      return ready == static_cast<int>(bytes.size());
    }));
  }
  // Fills the socket, so that nothing more can be sent to the client.
  void fillSocket() const {
    const std::string junk(4096, 'j');
    for (int full = 0; full < 20;) {
      const bool sent = ::send(server_end, junk.data(), junk.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
      full = sent ? 0 : full + 1;
      if (!sent) std::this_thread::sleep_for(milliseconds(5));
    }
  }

  asio::io_context io;
  asio::ip::tcp::acceptor acceptor;
  HttpServerOptions options;
  std::shared_ptr<ClientRegistry> clients = std::make_shared<ClientRegistry>(ClientMemoryLimits{});
  std::shared_ptr<Client> peer = clients->find("127.0.0.1");
  std::vector<HttpRequest> requests;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  HttpHandler handler = [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    requests.push_back(std::move(request));
    exchanges.push_back(std::move(exchange));
  };
  CorsPolicy cors{{}};
  TrustedProxies proxies;
  HttpConnectionContext context{options,
                                handler,
                                cors,
                                proxies,
                                *clients,
                                std::make_shared<BodyMemory>(),
                                [] { return false; },
                                [] { return false; }};
  std::unique_ptr<SocketClient> client;
  int server_end = -1;
  std::shared_ptr<HttpConnection> connection;
  std::weak_ptr<HttpConnection> weak;
};

TEST_F(HttpConnectionTest, AnEvictedConnectionHandlesNoRequest) {
  open();
  deliver("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_FALSE(connection->evict(Phase::kIdle));
  EXPECT_TRUE(connection->evict(Phase::kSilent));
  EXPECT_EQ(connection->view().phase, Phase::kEvicted);
  EXPECT_FALSE(connection->evict(Phase::kSilent));
  EXPECT_TRUE(ends());
  EXPECT_TRUE(requests.empty());
}

TEST_F(HttpConnectionTest, AConnectionThatHasBegunARequestIsNotEvicted) {
  open();
  client->send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_TRUE(runUntil([&] { return !requests.empty(); }));
  EXPECT_FALSE(connection->evict(Phase::kSilent)) << "its phase when it was chosen";
  EXPECT_EQ(connection->view().phase, Phase::kBusy);
  exchanges[0]->respond({.body = "{}"});
  ASSERT_TRUE(runUntilPhase(Phase::kIdle));
  EXPECT_TRUE(client->response().starts_with("HTTP/1.1 200"));
}

TEST_F(HttpConnectionTest, ARefusalThatIsNotReadDoesNotKeepAConnectionThatIsEvicted) {
  open();
  fillSocket();
  client->send("nonsense\r\n\r\n");
  ASSERT_TRUE(runUntilPhase(Phase::kLingering));
  EXPECT_TRUE(connection->evict(Phase::kLingering));
  EXPECT_TRUE(ends());
}

TEST_F(HttpConnectionTest, AHeadThatArrivesByteByByteIsOnePhase) {
  open();
  client->send("G");
  ASSERT_TRUE(runUntilPhase(Phase::kHead));
  const int64_t since = connection->view().since;
  client->send("E");
  ASSERT_TRUE(runUntil([&] { return options.counters->received_bytes == 2; }));
  EXPECT_EQ(connection->view().since, since);
}

constexpr const char* kAsksToContinue =
    "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";

TEST_F(HttpConnectionTest, AnUnreadContinueEndsTheConnectionWithoutABody) {
  HttpServerOptions limits;
  limits.write_timeout = milliseconds(300);
  limits.body_timeout = milliseconds(100);
  open(limits);
  fillSocket();
  client->send(kAsksToContinue);
  EXPECT_TRUE(ends());
  EXPECT_TRUE(requests.empty());
}

TEST_F(HttpConnectionTest, AnUnreadContinueEndsTheConnectionBeforeItsAnswer) {
  HttpServerOptions limits;
  limits.write_timeout = milliseconds(300);
  // A connection whose body comes too late ends without a request. That happens if the test's thread is held up, and
  // then another connection takes its place.
  for (int attempt = 0; attempt < 100 && requests.empty(); ++attempt) {
    open(limits);
    fillSocket();
    client->send(kAsksToContinue);
    ASSERT_TRUE(runUntilPhase(Phase::kBody));
    const auto late = std::chrono::steady_clock::now() + limits.write_timeout;
    client->send("abc");
    runUntil([&] { return !requests.empty() || std::chrono::steady_clock::now() > late; });
  }
  ASSERT_EQ(requests.size(), 1u);
  exchanges[0]->respond({.body = "{}"});
  exchanges.clear();
  EXPECT_TRUE(ends());
}

TEST_F(HttpConnectionTest, InputThatArrivesWithARequestIsChargedWhileTheRequestIsHandled) {
  open();
  deliver("GET /x HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(40'000, 'G'));
  ASSERT_TRUE(runUntil([&] { return !requests.empty(); }));
  requests.clear();
  EXPECT_GE(clients->used(), 40'000u);
}

TEST_F(HttpConnectionTest, TheHeadOfARequestIsChargedAsLongAsItIsKept) {
  open();
  client->send("GET /x HTTP/1.1\r\nHost: x\r\nFiller: " + std::string(10'000, 'f') + "\r\n\r\n");
  ASSERT_TRUE(runUntil([&] { return !requests.empty(); }));
  EXPECT_GE(clients->used(), 10'000u);
  requests.clear();
  EXPECT_EQ(clients->used(), 0u);
}

}  // namespace
}  // namespace chorus::server
