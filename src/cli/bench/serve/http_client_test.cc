#include "cli/bench/serve/http_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/testing/eventually.h"
#include "server/http/http.h"
#include "server/http/tls_certificates.h"
#include "server/testing/tls_fixture.h"

namespace chorus {
namespace {

using std::chrono::milliseconds;

struct Answer {
  int status = 0;
  HttpHeaders headers;
  std::string body, reason;
  CallEnd end = CallEnd::kComplete;
};

class Collector : public CallHandler {
 public:
  void onHead(const ResponseHead& head) override {
    answer_.status = head.status;
    answer_.headers = head.headers;
  }
  void onBody(std::string_view bytes) override { answer_.body += bytes; }
  void onEnd(CallEnd end, std::string_view reason) override {
    answer_.end = end;
    answer_.reason = reason;
    done_.set_value(answer_);
  }
  Answer wait() { return done_.get_future().get(); }

 private:
  Answer answer_;
  std::promise<Answer> done_;
};

Answer ask(HttpClient& client, const std::string& path = "/", std::string body = "") {
  const auto collector = std::make_shared<Collector>();
  client.send("POST", path, {{"x-test", "yes"}}, std::move(body), collector);
  return collector->wait();
}

// A TCP server that answers one connection with the given bytes and closes it. With an empty answer it sends nothing
// until the client closes.
class RawServer {
 public:
  explicit RawServer(std::string answer) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 8), 0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this, answer = std::move(answer)] {
      const int connection = ::accept(listener_, nullptr, nullptr);
      char input[4096];
      [[maybe_unused]] const auto read = ::recv(connection, input, sizeof(input), 0);
      if (answer.empty()) {
        while (::recv(connection, input, sizeof(input), 0) > 0) continue;  // until the client closes
      }
      [[maybe_unused]] const auto sent = ::send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      ::close(connection);
    });
  }
  ~RawServer() {
    ::shutdown(listener_, SHUT_RDWR);  // ends accept() if the client's connection was never made
    thread_.join();
    ::close(listener_);
  }
  uint16_t port = 0;

 private:
  int listener_;
  std::thread thread_;
};

TEST(HttpClientTest, RequestsAndAnswersArriveWhole) {
  server::HttpServer http({.port = 0}, [](server::HttpRequest request, std::shared_ptr<server::HttpExchange> exchange) {
    exchange->respond(
        {.status = 203, .body = request.method + request.path + std::string(request.header("x-test")) + request.body});
  });
  http.start();
  HttpClient client({.host = "127.0.0.1", .port = http.port(), .prefix = "/a"}, kPatience);
  const std::string large(300'000, 'x');
  const Answer answer = ask(client, "/b", large);
  EXPECT_EQ(answer.status, 203);
  EXPECT_EQ(answer.body, "POST/a/byes" + large);
  EXPECT_EQ(answer.end, CallEnd::kComplete);
}

TEST(HttpClientTest, StreamsComePieceByPiece) {
  std::promise<void> first_seen;
  std::thread writer;
  server::HttpServer http({.port = 0}, [&](server::HttpRequest, std::shared_ptr<server::HttpExchange> exchange) {
    exchange->beginStream(200, "text/event-stream");
    exchange->write("one");
    writer = std::thread([&first_seen, exchange] {
      first_seen.get_future().wait();
      exchange->write("two");
      exchange->endStream();
    });
  });
  http.start();
  class Watcher : public Collector {
   public:
    explicit Watcher(std::promise<void>& first) : first_(first) {}
    void onBody(std::string_view bytes) override {
      Collector::onBody(bytes);
      if (bytes == "one") first_.set_value();
    }

   private:
    std::promise<void>& first_;
  };
  HttpClient client({.host = "127.0.0.1", .port = http.port()}, kPatience);
  const auto watcher = std::make_shared<Watcher>(first_seen);
  client.send("GET", "/", {}, "", watcher);
  const Answer answer = watcher->wait();
  writer.join();
  EXPECT_EQ(answer.body, "onetwo");
  EXPECT_EQ(answer.end, CallEnd::kComplete);
}

TEST(HttpClientTest, ManyAtOnce) {
  server::HttpServer http({.port = 0}, [](server::HttpRequest request, std::shared_ptr<server::HttpExchange> exchange) {
    exchange->respond({.body = request.path});
  });
  http.start();
  HttpClient client({.host = "127.0.0.1", .port = http.port()}, kPatience);
  std::vector<std::shared_ptr<Collector>> collectors;
  for (int i = 0; i < 200; ++i) {
    collectors.push_back(std::make_shared<Collector>());
    client.send("GET", "/" + std::to_string(i), {}, "", collectors.back());
  }
  for (int i = 0; i < 200; ++i) EXPECT_EQ(collectors[static_cast<size_t>(i)]->wait().body, "/" + std::to_string(i));
}

Answer askRaw(std::string bytes, milliseconds timeout = kPatience) {
  RawServer raw(std::move(bytes));
  HttpClient client({.host = "127.0.0.1", .port = raw.port}, timeout);
  return ask(client);
}

TEST(HttpClientTest, FailuresHaveTheirKinds) {
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);  // nobody listens there, and nobody else can
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  HttpClient nobody({.host = "127.0.0.1", .port = ntohs(address.sin_port)}, kPatience);
  EXPECT_EQ(ask(nobody).end, CallEnd::kRefused);
  ::close(taken);
  EXPECT_EQ(askRaw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").end, CallEnd::kComplete);
  EXPECT_EQ(askRaw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").end, CallEnd::kDisconnected);
  EXPECT_EQ(askRaw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").end, CallEnd::kDisconnected);
  EXPECT_EQ(askRaw("HTTP/1.1 2").end, CallEnd::kDisconnected);
  EXPECT_EQ(askRaw("SSH-2.0-server\r\n\r\n").end, CallEnd::kBadResponse);
  EXPECT_EQ(askRaw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n").end, CallEnd::kBadResponse);
  EXPECT_EQ(askRaw("", milliseconds(50)).end, CallEnd::kTimedOut);
}

TEST(HttpClientTest, DelayedRequestsAreSentLaterOrStopped) {
  server::HttpServer http({.port = 0}, [](server::HttpRequest, std::shared_ptr<server::HttpExchange> exchange) {
    exchange->respond({.headers = {{"X-Wait", "Yes"}}});
  });
  http.start();
  HttpClient client({.host = "127.0.0.1", .port = http.port()}, kPatience);
  const auto soon = std::make_shared<Collector>(), late = std::make_shared<Collector>();
  const auto begin = std::chrono::steady_clock::now();
  client.send("GET", "/", {}, "", late, 10 * kPatience);
  client.send("GET", "/", {}, "", soon, milliseconds(80));
  const Answer answer = soon->wait();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(80));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.headers, testing::Contains(std::make_pair(std::string("x-wait"), std::string("Yes"))));
  client.stop();
  EXPECT_EQ(late->wait().end, CallEnd::kStopped);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2 * kPatience);
}

TEST(HttpClientTest, StopEndsWhatIsUnderWay) {
  RawServer silent("");
  HttpClient client({.host = "127.0.0.1", .port = silent.port}, 10 * kPatience);
  const auto collector = std::make_shared<Collector>();
  client.send("GET", "/", {}, "", collector);
  client.stop();
  EXPECT_EQ(collector->wait().end, CallEnd::kStopped);
}

TEST(HttpClientTest, FetchNamesThePath) {
  server::HttpServer http({.port = 0}, [](server::HttpRequest request, std::shared_ptr<server::HttpExchange> exchange) {
    exchange->respond({.status = request.path == "/good" ? 200 : 404, .body = "text"});
  });
  http.start();
  HttpClient client({.host = "127.0.0.1", .port = http.port()}, kPatience);
  EXPECT_EQ(fetchBody(client, "/good", {}), "text");
  try {
    fetchBody(client, "/bad", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/bad was not answered: status 404"), std::string::npos) << error.what();
  }
}

// A server with a certificate for localhost and 127.0.0.1, of an authority of its own.
class TlsHttpClientTest : public testing::Test {
 protected:
  TlsHttpClientTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "chorus-tls-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    authority_.write(path("ca.pem"), path("ca.key"));
    server::TestCertificate("server", &authority_).write(path("cert.pem"), path("cert.key"));
    server::TestCertificate("stranger").write(path("other.pem"), path("other.key"));
    server::HttpServerOptions options{.port = 0};
    options.tls =
        std::make_shared<server::TlsCertificates>(server::TlsFiles{.cert = path("cert.pem"), .key = path("cert.key")});
    http_ = std::make_unique<server::HttpServer>(
        options, [](const server::HttpRequest& request, const std::shared_ptr<server::HttpExchange>& exchange) {
          exchange->beginStream(200, "text/event-stream");
          for (int i = 0; i < 3; ++i) exchange->write("piece ");
          exchange->write(request.body);
          exchange->endStream();
        });
    http_->start();
  }
  ~TlsHttpClientTest() override {
    http_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path(const char* name) const { return folder_ / name; }
  Answer askWith(const std::string& ca_file, const std::string& host = "127.0.0.1", bool tls = true) const {
    HttpClient client({.host = host, .port = http_->port(), .tls = tls}, kPatience, ca_file);
    return ask(client, "/", std::string(100'000, 'x'));
  }

  std::filesystem::path folder_;
  server::TestCertificate authority_{"authority"};
  std::unique_ptr<server::HttpServer> http_;
};

TEST_F(TlsHttpClientTest, RequestsAndStreamsPassThroughTls) {
  const Answer answer = askWith(path("ca.pem"));
  EXPECT_EQ(answer.end, CallEnd::kComplete) << answer.reason;
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "piece piece piece " + std::string(100'000, 'x'));
}

TEST_F(TlsHttpClientTest, AServerThatTheAuthoritiesDoNotVouchForIsRefused) {
  for (const std::string& ca_file : {std::string(), path("other.pem")}) {
    const Answer answer = askWith(ca_file);
    EXPECT_EQ(answer.end, CallEnd::kRefused) << ca_file;
    EXPECT_THAT(answer.reason, testing::HasSubstr("TLS: the server's certificate is not accepted"));
    EXPECT_EQ(answer.status, 0);
  }
}

TEST_F(TlsHttpClientTest, ACertificateForAnotherNameIsRefused) {
  // Another spelling of 127.0.0.1, which is no name in the certificate.
  const Answer answer = askWith(path("ca.pem"), "127.1");
  EXPECT_EQ(answer.end, CallEnd::kRefused);
  EXPECT_THAT(answer.reason, testing::HasSubstr("hostname mismatch"));
  EXPECT_EQ(askWith(path("ca.pem"), "localhost").end, CallEnd::kComplete);
}

TEST_F(TlsHttpClientTest, BothSidesMustSpeakTls) {
  EXPECT_EQ(askWith("", "127.0.0.1", false).status, 400) << "the server says that it speaks TLS";
  RawServer plain("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
  HttpClient client({.host = "127.0.0.1", .port = plain.port, .tls = true}, kPatience, path("ca.pem"));
  const Answer answer = ask(client);
  EXPECT_EQ(answer.end, CallEnd::kRefused);
  EXPECT_THAT(answer.reason, testing::StartsWith("TLS: "));
}

TEST_F(TlsHttpClientTest, FilesWithoutCertificatesAreRefusedByName) {
  for (const std::string& file : {path("none.pem"), path("cert.key")}) {
    try {
      askWith(file);
      FAIL() << file;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("--ca_cert " + file + ": no certificates in PEM form"));
    }
  }
}

TEST(HttpUrlTest, Parts) {
  const auto text = [](const char* url) {
    const HttpTarget target = parseHttpUrl(url);
    return target.host + "|" + std::to_string(target.port) + "|" + target.prefix;
  };
  EXPECT_EQ(text("http://localhost:8000"), "localhost|8000|");
  EXPECT_EQ(text("http://localhost/"), "localhost|80|");
  EXPECT_EQ(text("http://10.0.0.1:65535/v1"), "10.0.0.1|65535|");
  EXPECT_EQ(text("http://[::1]:8000/gate/v1/"), "::1|8000|/gate");
  EXPECT_EQ(text("https://example.org/v1"), "example.org|443|");
  EXPECT_EQ(text("https://[::1]:8443"), "::1|8443|");
  EXPECT_TRUE(parseHttpUrl("https://x").tls);
  EXPECT_FALSE(parseHttpUrl("http://x").tls);
  for (const char* bad : {"", "localhost:8000", "ftp://x", "https://", "https://:443", "http://", "http://:80",
                          "http://x:0", "http://x:65536", "http://x:", "http://x:8a", "http://[::1", "http://[::1]80",
                          "http://u@x", "http://x/?q", "http://x/a b", "http://x\r\nh: v"}) {
    EXPECT_THROW(parseHttpUrl(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace chorus
