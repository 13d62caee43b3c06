#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/testing/error_of.h"
#include "base/testing/eventually.h"
#include "server/http/http.h"
#include "server/http/testing/tls_server_fixture.h"
#include "server/http/tls_certificates.h"
#include "server/testing/tls_fixture.h"

namespace chorus::server {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TlsTest : public TlsServerFixture {};

TEST_F(TlsTest, ServesHttpOverBothVersions) {
  start();
  EXPECT_THAT(server->url(), StartsWith("https://127.0.0.1:"));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto one = client({.version = version, .protocols = std::string("\x02h2\x08http/1.1")});
    ASSERT_TRUE(one->connected) << version;
    EXPECT_EQ(one->protocol(), "http/1.1");
    for (int i = 0; i < 3; ++i) EXPECT_THAT(get(*one, "/" + std::to_string(i)), HasSubstr("GET /" + std::to_string(i)));
    const std::string body(3 << 20, 'b');
    one->send("POST /large HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + std::to_string(body.size()) + "\r\n\r\n");
    ASSERT_TRUE(one->send(body));
    EXPECT_THAT(one->response().size(), ::testing::Gt(body.size())) << "more than the socket's buffers hold";
    one->send("GET /stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    EXPECT_THAT(one->readUntil("no such text"), AllOf(HasSubstr("piece "), HasSubstr("0\r\n\r\n")));
    EXPECT_TRUE(one->endedInOrder());
  }
  EXPECT_FALSE(client({.version = TLS1_1_VERSION})->connected);
  EXPECT_FALSE(client({.protocols = std::string("\x02h2")})->connected);
  EXPECT_TRUE(failures(2));
}

TEST_F(TlsTest, ARequestMayArriveInAnyPieces) {
  start();
  const auto one = client();
  for (const char c : std::string("GET /bytes HTTP/1.1\r\nhost: localhost\r\n\r\n")) one->send({&c, 1});
  EXPECT_THAT(one->response(), HasSubstr("GET /bytes"));
  one->send("GET /a HTTP/1.1\r\nhost: localhost\r\n\r\nGET /b HTTP/1.1\r\nhost: localhost\r\n\r\n");
  EXPECT_THAT(one->response(), HasSubstr("GET /a"));
  EXPECT_THAT(one->response(), HasSubstr("GET /b"));
}

TEST_F(TlsTest, ADisconnectIsNoticed) {
  start();
  for (const bool in_order : {false, true}) {
    aborted = false;
    const auto one = client();
    one->send("GET /hold HTTP/1.1\r\nhost: localhost\r\n\r\n");
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(aborted);
    if (in_order)
      SSL_shutdown(one->ssl());
    else
      one->close();
    EXPECT_TRUE(eventually([&] { return aborted.load(); })) << in_order;
    held.clear();
  }
}

TEST_F(TlsTest, ClientsNeedCertificatesOfTheAuthority) {
  const TestCertificate authority_of_clients("clients"), other("clients");
  writeFileAtomically(path("ca.pem"), authority_of_clients.certificatePem());
  const TestCertificate good("alice", &authority_of_clients), bad("mallory", &other), none("self");
  start({}, true);
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto accepted = client({.own = &good, .version = version});
    EXPECT_TRUE(accepted->connected);
    EXPECT_THAT(get(*accepted), HasSubstr("GET /x"));
    for (const TestCertificate* own : {static_cast<const TestCertificate*>(nullptr), &bad, &none}) {
      // With TLS 1.3 the client sees the refusal when it reads.
      const auto refused = client({.own = own, .version = version});
      EXPECT_EQ(get(*refused), "") << version;
    }
  }
  EXPECT_TRUE(failures(6));
}

TEST_F(TlsTest, PlainHttpGetsOneAnswerAndACleanEnd) {
  start();
  const int fd = TlsClient::connectTo(server->port());
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000\r\n\r\n" + std::string(20000, 'x');
  ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  EXPECT_TRUE(readToEnd(fd, answer)) << "not reset";
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("This port speaks TLS; use https:// in the URL.")));
  close(fd);
  EXPECT_TRUE(serves());
}

TEST_F(TlsTest, ANewCertificateIsForNewConnections) {
  start();
  const auto before = client();
  EXPECT_EQ(before->serverSerial(), 1);
  const TestCertificate next("renewed", &authority, 2);
  next.write(path("cert.pem"), path("key.pem"));
  certificates->refresh();
  EXPECT_EQ(client()->serverSerial(), 2);
  EXPECT_THAT(get(*before), HasSubstr("GET /x")) << "old connections go on";

  // Files that cannot be used change nothing.
  writeFileAtomically(path("key.pem"), authority.keyPem());
  certificates->refresh();
  EXPECT_EQ(client()->serverSerial(), 2);
  std::filesystem::remove(path("cert.pem"));
  certificates->refresh(true);
  EXPECT_EQ(client()->serverSerial(), 2);
  writeFileAtomically(path("cert.pem"), authority.certificatePem());
  certificates->refresh();
  EXPECT_EQ(client()->serverSerial(), 1);
}

TEST_F(TlsTest, FaultsOfTheFilesNameFlagAndFile) {
  const auto fault = [&] { return errorOf([&] { const TlsCertificates made(files(true)); }); };
  writeFileAtomically(path("ca.pem"), authority.certificatePem());
  EXPECT_EQ(fault(), "");
  EXPECT_THAT(errorOf([&] { const TlsCertificates made({.cert = path("cert.pem"), .key = "", .client_ca = ""}); }),
              HasSubstr("--tls_cert_file needs --tls_key_file"));
  EXPECT_THAT(errorOf([&] { const TlsCertificates made({.cert = "", .key = path("key.pem"), .client_ca = ""}); }),
              HasSubstr("--tls_key_file needs --tls_cert_file"));
  writeFileAtomically(path("ca.pem"), "no certificate");
  EXPECT_THAT(fault(), AllOf(StartsWith("--tls_client_ca_file "), HasSubstr("ca.pem: no certificates in PEM form")));
  std::filesystem::remove(path("ca.pem"));
  EXPECT_THAT(fault(), AllOf(StartsWith("--tls_client_ca_file"), HasSubstr("ca.pem")));
  writeFileAtomically(path("key.pem"), TestCertificate("other").keyPem());
  EXPECT_THAT(fault(), AllOf(StartsWith("--tls_key_file "), HasSubstr("it is not the key of the certificate in ")));
  writeFileAtomically(path("key.pem"), authority.keyPem("secret"));
  EXPECT_THAT(fault(), AllOf(StartsWith("--tls_key_file "), HasSubstr("without a passphrase")));
  writeFileAtomically(path("key.pem"), "x");
  EXPECT_THAT(fault(), HasSubstr("no private key in PEM form"));
  writeFileAtomically(path("cert.pem"), std::string(100'000, 'c'));
  EXPECT_THAT(fault(), AllOf(StartsWith("--tls_cert_file "), HasSubstr("cert.pem: no certificate in PEM form")));
  std::filesystem::remove(path("cert.pem"));
  EXPECT_THAT(fault(), AllOf(StartsWith("--tls_cert_file"), HasSubstr("cert.pem")));
}

TEST_F(TlsTest, AnIdleConnectionTakesLittleMemory) {
  HttpServerOptions options;
  options.max_connections_per_client = 1000;
  start(options);
  constexpr int kConnections = 200;
  std::vector<int> idle;
  const auto open = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto one = client();
      ASSERT_TRUE(one->connected);
      // Whatever a large request took is freed after its answer.
      const std::string body(100'000, 'b');
      one->send("POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n" + body);
      ASSERT_TRUE(one->response().ends_with("POST /x" + body));
      ASSERT_THAT(get(*one), HasSubstr("GET /x"));
      idle.push_back(one->detach());
    }
  };
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  open(20);  // what is allocated once
  std::this_thread::sleep_for(milliseconds(100));
  const size_t before = used();
  open(kConnections);
  std::this_thread::sleep_for(milliseconds(100));
  const size_t each = (used() - before) / kConnections;
  std::printf("%zu bytes for each idle connection\n", each);
  RecordProperty("bytes_per_connection", static_cast<int>(each));
  EXPECT_LT(each, size_t{18} << 10);  // of which OpenSSL's session takes 14
  for (const int fd : idle) close(fd);
}

}  // namespace
}  // namespace chorus::server
