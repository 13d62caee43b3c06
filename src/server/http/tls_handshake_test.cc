#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/testing/eventually.h"
#include "server/http/http.h"
#include "server/http/testing/tls_server_fixture.h"
#include "server/testing/tls_fixture.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

class TlsHandshakeTest : public TlsServerFixture {};

// Whatever bytes come, the connection ends, and others are served.
TEST_F(TlsHandshakeTest, GarbageEndsTheConnection) {
  HttpServerOptions options;
  options.tls_timeout = milliseconds(500);
  start(options);
  const std::string hello = firstMessage();
  ASSERT_GT(hello.size(), 100u);
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = hello;
    switch (round % 5) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        for (int i = 0; i < 8; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
        break;
      case 2:
        bytes.assign(random() % 5000, '\0');
        for (char& c : bytes) c = static_cast<char>(random());
        break;
      case 3:
        bytes += bytes;
        break;
      default:  // a record header with another length
        bytes[3] = static_cast<char>(random());
        bytes[4] = static_cast<char>(random());
        break;
    }
    const int fd = TlsClient::connectTo(server->port());
    ASSERT_GE(fd, 0);
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (round % 3 == 0) shutdown(fd, SHUT_WR);
    if (round % 7 == 0) {
      std::string answer;
      readToEnd(fd, answer);  // ends within the timeout of the handshake
    }
    close(fd);
    // On a busy machine a handshake may last longer than its timeout.
    if (round % 50 == 0) {
      EXPECT_TRUE(eventually([&] { return serves(); }));
    }
  }
  EXPECT_TRUE(eventually([&] { return serves(); }));
  EXPECT_TRUE(eventually([&] { return counters->open == 0; }));
}

// OpenSSL would allocate what the header of the message announces.
TEST_F(TlsHandshakeTest, AnOverlongHelloEndsTheHandshake) {
  start();
  const std::string header("\x01\x01\xff\xb8", 4);  // announces 131,000 bytes
  const auto record = [](const std::string& bytes) {
    return std::string("\x16\x03\x01\x00", 4) + static_cast<char>(bytes.size()) + bytes;
  };
  std::string pieces;
  for (const char byte : header) pieces += record({byte});
  uint64_t refused = 0;
  for (const std::string& bytes : {record(header), record(header + "hello"), pieces}) {
    const int fd = TlsClient::connectTo(server->port());
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(failures(++refused)) << "with " << bytes.size() << " bytes";
    close(fd);
  }

  // The second hello, which a client sends if the server has no use for the key in the first.
  std::string hello = firstMessage("X448:P-256");
  const std::string groups("\x00\x0a\x00\x06\x00\x04\x00\x1e", 8), share("\x00\x33\x00\x3e\x00\x3c\x00\x1e", 8);
  for (const std::string& place : {groups, share}) {
    const size_t at = hello.find(place);
    ASSERT_NE(at, std::string::npos);
    hello.replace(at + 6, 2, "\x1a\x1a");  // a group that does not exist
  }
  const std::string change("\x14\x03\x03\x00\x01\x01", 6);
  for (const std::string& between : {std::string(), change}) {
    const int fd = TlsClient::connectTo(server->port());
    ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    char answer[16] = {};
    ASSERT_EQ(recv(fd, answer, sizeof answer, MSG_WAITALL), 16);
    EXPECT_EQ(std::string(answer + 11, 3), "\xcf\x21\xad") << "asks for another hello";
    const std::string bytes = between + record(header);
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(failures(++refused));
    close(fd);
  }

  // Names of protocols make long hellos that are valid.
  for (const int names : {55, 70}) {
    std::string protocols("\x08http/1.1");
    for (int i = 0; i < names; ++i) protocols += static_cast<char>(255) + std::string(255, static_cast<char>('a' + i));
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      EXPECT_EQ(client({.version = version, .protocols = protocols})->connected, names == 55);
    }
  }
  EXPECT_TRUE(serves());
}

// OpenSSL would keep a pointer for each cipher suite, also for those that the list repeats.
TEST_F(TlsHandshakeTest, AHelloHasAFewHundredCipherSuitesAtMost) {
  start();
  const std::string hello = firstMessage();
  const auto at = [&](size_t index) { return static_cast<unsigned char>(hello[index]); };
  const auto number = [](size_t value, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  // Headers of record and message (9 bytes), version (2), random number (32), session id, then the suites.
  const size_t suites = 43 + 1 + at(43), own = size_t{256} * at(suites) + at(suites + 1);
  uint64_t failed = 0;
  for (const size_t count : {size_t{500}, size_t{600}, size_t{7800}}) {
    std::string many;
    for (size_t i = 0; i < count; ++i) many += "\x13\x01";
    const std::string body =
        hello.substr(9, suites - 9) + number(many.size(), 2) + many + hello.substr(suites + 2 + own);
    const std::string bytes = hello.substr(0, 3) + number(body.size() + 4, 2) + "\x01" + number(body.size(), 3) + body;
    const int fd = TlsClient::connectTo(server->port());
    ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char answer[6] = {};
    ASSERT_EQ(recv(fd, answer, sizeof answer, MSG_WAITALL), 6);
    constexpr char kAlert = 21, kHandshake = 22;
    EXPECT_EQ(answer[0], count == 500 ? kHandshake : kAlert) << count;
    close(fd);
    EXPECT_TRUE(failures(++failed)) << count << ": refused, or left by its client";
  }
  EXPECT_TRUE(serves());
}

TEST_F(TlsHandshakeTest, ASlowHandshakeIsEnded) {
  HttpServerOptions options;
  options.tls_timeout = milliseconds(300);
  start(options);
  const auto begin = steady_clock::now();
  const int silent = TlsClient::connectTo(server->port()), slow = TlsClient::connectTo(server->port());
  std::atomic<bool> ended{false}, whole{false};
  std::thread trickle([&] {
    const std::string start_of_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
    for (int i = 0; i < 500 && !ended; ++i) {  // the hello has 517 bytes
      const char byte = i < 11 ? start_of_hello[static_cast<size_t>(i)] : 'r';
      if (::send(slow, &byte, 1, MSG_NOSIGNAL) != 1) return;
      std::this_thread::sleep_for(milliseconds(50));
    }
    whole = !ended;
  });
  std::string nothing;
  readToEnd(silent, nothing);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(250));
  readToEnd(slow, nothing);
  ended = true;
  EXPECT_FALSE(whole) << "each byte begins no new timeout";
  EXPECT_EQ(nothing, "");
  EXPECT_TRUE(failures(2));
  trickle.join();
  close(silent);
  close(slow);
}

TEST_F(TlsHandshakeTest, AClientThatIsSilentAfterItsHandshakeDelaysNoStop) {
  const HttpServerOptions options;
  start(options);
  const int fd = TlsClient::connectTo(server->port());
  EXPECT_TRUE(eventually([&] { return counters->open == 1; }));
  const std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  const std::unique_ptr<SSL, FreeBy<SSL_free>> ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), fd);
  const auto begin = steady_clock::now();
  server->stopAccepting();
  const bool connected = SSL_connect(ssl.get()) == 1;
  // A handshake that takes longer, because the machine is busy, may be given up.
  EXPECT_TRUE(connected || steady_clock::now() - begin > milliseconds(100));
  EXPECT_TRUE(server->waitUntilClosed(options.idle_timeout / 2));
  close(fd);
}

// A client that changes its keys without end sends no data.
TEST_F(TlsHandshakeTest, EndlessKeyUpdatesDelayNobody) {
  HttpServerOptions options;
  options.io_threads = 1;
  start(options);
  std::atomic<bool> stop{false};
  const auto busy = client({.version = TLS1_3_VERSION});
  std::thread updates([&] {
    while (!stop && SSL_key_update(busy->ssl(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
           SSL_do_handshake(busy->ssl()) == 1) {
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(serves()) << "within the time-out of a client's reads";
  }
  stop = true;
  updates.join();
}

TEST_F(TlsHandshakeTest, HalfOpenHandshakesCountAndGiveWay) {
  HttpServerOptions options;
  options.max_connections_per_client = 4;
  start(options);
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(TlsClient::connectTo(server->port()));
  EXPECT_TRUE(eventually([&] { return counters->accepted == 20 && counters->open == 4; }));
  EXPECT_EQ(counters->evicted, 16u);
  EXPECT_TRUE(failures(16));
  EXPECT_TRUE(serves());
  for (const int fd : silent) close(fd);
}

// Lengthens the handshakes of a server, so that a test which counts how many the server computes while the test does
// something else may be held up for seconds.
class LongHandshakes {
 public:
  // Notes the contexts that are made from now on.
  static void watch() {
    static const int watching = CRYPTO_get_ex_new_index(
        CRYPTO_EX_INDEX_SSL_CTX, 0, nullptr,
        [](void* made, void*, CRYPTO_EX_DATA*, int, long, void*) { latest_ = static_cast<SSL_CTX*>(made); }, nullptr,
        nullptr);
    ASSERT_GE(watching, 0);
  }
  // Makes each handshake of the server whose context was made last take `time` before it answers the client's hello.
  static void lengthen(milliseconds time) {
    time_ = time;
    SSL_CTX_set_msg_callback(latest_, [](int sent, int, int type, const void* bytes, size_t size, SSL*, void*) {
      const bool answers = sent == 1 && type == SSL3_RT_HANDSHAKE && size > 0 &&
                           *static_cast<const unsigned char*>(bytes) == SSL3_MT_SERVER_HELLO;
      if (answers) std::this_thread::sleep_for(time_.load());
    });
  }
  static void end() { time_ = milliseconds(0); }

 private:
  static inline std::atomic<SSL_CTX*> latest_{nullptr};
  static inline std::atomic<milliseconds> time_{milliseconds(0)};
};

// A client begins handshakes and never goes on: each of them costs the server a signature.
class TlsFloodTest : public TlsServerFixture {
 protected:
  static constexpr int kFlood = 60;

  TlsFloodTest() {
    const TestCertificate slow("localhost", &authority, 2, slowKey());
    slow.write(path("cert.pem"), path("key.pem"));
    HttpServerOptions options;
    options.io_threads = 1;
    options.max_connections_per_client = kFlood + 4;
    LongHandshakes::watch();
    start(options);
    LongHandshakes::lengthen(milliseconds(300));
    established = client();
    EXPECT_THAT(get(*established), HasSubstr("GET /x"));
  }
  ~TlsFloodTest() override {
    LongHandshakes::end();
    for (const int fd : flooding) close(fd);
  }
  void flood(int count = kFlood, in_addr_t address = INADDR_LOOPBACK) {
    const std::string hello = firstMessage();
    for (int i = 0; i < count; ++i) {
      flooding.push_back(TlsClient::connectTo(server->port(), address));
      ::send(flooding.back(), hello.data(), hello.size(), MSG_NOSIGNAL);
    }
  }
  // The clients of the flood are gone, but what they were sent can still be counted.
  void endFlood() const {
    for (const int fd : flooding) shutdown(fd, SHUT_WR);
  }
  // How many handshakes of the flood the server has computed: each answers the first message.
  int computed() const {
    return static_cast<int>(std::ranges::count_if(flooding, [](int fd) {
      char byte = 0;
      return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    }));
  }
  // How many of them it computes during the call.
  template <typename Call>
  int computedDuring(Call call) const {
    const int before = computed();
    call();
    return computed() - before;
  }

  std::unique_ptr<TlsClient> established;
  std::vector<int> flooding;
};

TEST_F(TlsFloodTest, DelaysNeitherConnectionsNorOtherClients) {
  flood();
  EXPECT_LT(computedDuring([&] { EXPECT_THAT(get(*established), HasSubstr("GET /x")); }), kFlood / 4);
  // Another address has the next turns.
  EXPECT_LT(computedDuring([&] { EXPECT_TRUE(client({.address = INADDR_LOOPBACK + 1})->connected); }), kFlood / 4);
  EXPECT_LT(computed(), kFlood / 2);
  LongHandshakes::end();
  EXPECT_TRUE(serves());
  EXPECT_EQ(computed(), kFlood) << "the same address waits for its flood";
}

TEST_F(TlsFloodTest, IsNotWaitedForByStop) {
  flood();
  EXPECT_LT(computedDuring([&] { server->stop(); }), kFlood / 4);
  EXPECT_EQ(counters->open, 0);
}

// While another client has turns, too.
TEST_F(TlsFloodTest, HoldsNoMoreConnectionsThanAllowed) {
  LongHandshakes::lengthen(milliseconds(1000));  // many connections are opened meanwhile
  flood(kFlood, INADDR_LOOPBACK + 1);
  flood(3 * kFlood);
  const auto most = static_cast<int64_t>(2 * kFlood + 4);
  EXPECT_LT(computedDuring([&] {
              EXPECT_TRUE(eventually([&] { return counters->accepted == 4 * kFlood + 1 && counters->open <= most; }));
            }),
            kFlood / 4);
  EXPECT_THAT(get(*established), HasSubstr("GET /x"));
}

TEST_F(TlsFloodTest, CostsNothingOnceItsClientsAreGone) {
  flood();
  endFlood();
  EXPECT_LT(computedDuring([&] { EXPECT_TRUE(serves()); }), kFlood / 4);
}

}  // namespace
}  // namespace chorus::server
