// A server that speaks TLS on a free port of loopback, with a certificate of an authority that its clients trust.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/eventually.h"
#include "server/http/http.h"
#include "server/http/tls_certificates.h"
#include "server/testing/tls_fixture.h"

namespace chorus::server {

class TlsServerFixture : public ::testing::Test {
 protected:
  TlsServerFixture() {
    std::signal(SIGPIPE, SIG_IGN);
    std::string pattern = (std::filesystem::temp_directory_path() / "chorus-tls-XXXXXX").string();
    folder = mkdtemp(pattern.data());
    authority.write(path("cert.pem"), path("key.pem"));
  }
  ~TlsServerFixture() override {
    held.clear();
    server.reset();
    std::filesystem::remove_all(folder);
  }
  std::filesystem::path path(const char* name) const { return folder / name; }
  TlsFiles files(bool clients = false) const {
    return {.cert = path("cert.pem"), .key = path("key.pem"), .client_ca = clients ? path("ca.pem").string() : ""};
  }
  void start(HttpServerOptions options = {}, bool clients = false) {
    options.port = 0;
    // By default no handshake ends in time, however busy the machine is.
    if (options.tls_timeout == HttpServerOptions().tls_timeout) options.tls_timeout = std::chrono::minutes(5);
    certificates = std::make_shared<TlsCertificates>(files(clients));
    options.tls = certificates;
    counters = options.counters;
    server = std::make_unique<HttpServer>(
        options, [this](const HttpRequest& request, std::shared_ptr<HttpExchange> exchange) {
          if (request.path == "/hold") {
            exchange->onAbort([this] { aborted = true; });
            held.push_back(std::move(exchange));
            return;
          }
          if (request.path == "/stream") {
            exchange->beginStream(200, "text/plain");
            for (int i = 0; i < 50; ++i) exchange->write("piece ");
            return exchange->endStream();
          }
          exchange->respond({.content_type = "text/plain", .body = request.method + " " + request.path + request.body});
        });
    server->start();
  }
  std::unique_ptr<TlsClient> client(TlsClient::Options options = {}) const {
    options.trusted = &authority;
    return std::make_unique<TlsClient>(server->port(), options);
  }
  static std::string get(TlsClient& client, const std::string& target = "/x", const std::string& more = "") {
    client.send("GET " + target + " HTTP/1.1\r\nhost: localhost\r\n" + more + "\r\n");
    return client.response();
  }
  bool serves() const {
    const auto one = client();
    return one->connected && get(*one).ends_with("GET /x");
  }
  // A valid first message of a client. groups: of its keys, in OpenSSL's form; null: the usual ones.
  static std::string firstMessage(const char* groups = nullptr) {
    const std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
    if (groups != nullptr) SSL_CTX_set1_groups_list(context.get(), groups);
    const std::unique_ptr<SSL, FreeBy<SSL_free>> ssl(SSL_new(context.get()));
    BIO* out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
    SSL_connect(ssl.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    return {data, static_cast<size_t>(size)};
  }
  // Reads a raw socket to its end. False if it was reset.
  static bool readToEnd(int fd, std::string& text) {
    char buffer[4096];
    while (true) {
      const ssize_t count = recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) return count == 0;
      text.append(buffer, static_cast<size_t>(count));
    }
  }
  // OpenSSL sends its alert before the server counts the failure.
  bool failures(uint64_t expected) const {
    eventually([&] { return counters->tls_failures >= expected; });
    return counters->tls_failures == expected;
  }

  std::filesystem::path folder;
  TestCertificate authority{"localhost"};
  std::shared_ptr<TlsCertificates> certificates;
  std::shared_ptr<HttpCounters> counters;
  std::unique_ptr<HttpServer> server;
  std::vector<std::shared_ptr<HttpExchange>> held;
  std::atomic<bool> aborted{false};
};

}  // namespace chorus::server
