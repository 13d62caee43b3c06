// Certificates made for tests, and a blocking TLS client.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/testing/eventually.h"

namespace chorus::server {

template <auto Function>
struct FreeBy {
  template <typename T>
  void operator()(T* object) const {
    Function(object);
  }
};
using OwnKey = std::unique_ptr<EVP_PKEY, FreeBy<EVP_PKEY_free>>;
using OwnCertificate = std::unique_ptr<X509, FreeBy<X509_free>>;

// An RSA key whose signatures take tens of milliseconds. It is made at once, because its primes are known: two of
// Mersenne's.
inline OwnKey slowKey() {
  struct Numbers {
    Numbers() { BN_CTX_start(context.get()); }
    ~Numbers() { BN_CTX_end(context.get()); }
    BIGNUM* next() { return BN_CTX_get(context.get()); }
    std::unique_ptr<BN_CTX, FreeBy<BN_CTX_free>> context{BN_CTX_new()};
  } numbers;
  BN_CTX* ctx = numbers.context.get();
  const auto mersenne = [&](int exponent) {
    BIGNUM* made = numbers.next();
    BN_set_bit(made, exponent);
    BN_sub_word(made, 1);
    return made;
  };
  const auto less_one = [&](const BIGNUM* of) {
    BIGNUM* made = BN_copy(numbers.next(), of);
    BN_sub_word(made, 1);
    return made;
  };
  const BIGNUM *p = mersenne(4423), *q = mersenne(4253), *p1 = less_one(p), *q1 = less_one(q);
  BIGNUM *n = numbers.next(), *e = numbers.next(), *phi = numbers.next(), *d = numbers.next(), *dp = numbers.next(),
         *dq = numbers.next(), *inverse = numbers.next();
  BN_set_word(e, 65537);
  BN_mul(n, p, q, ctx);
  BN_mul(phi, p1, q1, ctx);
  BN_mod_inverse(d, e, phi, ctx);
  BN_mod(dp, d, p1, ctx);
  BN_mod(dq, d, q1, ctx);
  BN_mod_inverse(inverse, q, p, ctx);
  const std::unique_ptr<OSSL_PARAM_BLD, FreeBy<OSSL_PARAM_BLD_free>> build(OSSL_PARAM_BLD_new());
  const std::pair<const char*, const BIGNUM*> values[] = {
      {OSSL_PKEY_PARAM_RSA_N, n},          {OSSL_PKEY_PARAM_RSA_E, e},
      {OSSL_PKEY_PARAM_RSA_D, d},          {OSSL_PKEY_PARAM_RSA_FACTOR1, p},
      {OSSL_PKEY_PARAM_RSA_FACTOR2, q},    {OSSL_PKEY_PARAM_RSA_EXPONENT1, dp},
      {OSSL_PKEY_PARAM_RSA_EXPONENT2, dq}, {OSSL_PKEY_PARAM_RSA_COEFFICIENT1, inverse}};
  for (const auto& [name, value] : values) OSSL_PARAM_BLD_push_BN(build.get(), name, value);
  const std::unique_ptr<OSSL_PARAM, FreeBy<OSSL_PARAM_free>> params(OSSL_PARAM_BLD_to_param(build.get()));
  const std::unique_ptr<EVP_PKEY_CTX, FreeBy<EVP_PKEY_CTX_free>> rsa(
      EVP_PKEY_CTX_new_from_name(nullptr, "RSA", nullptr));
  EVP_PKEY* made = nullptr;
  EVP_PKEY_fromdata_init(rsa.get());
  EVP_PKEY_fromdata(rsa.get(), &made, EVP_PKEY_KEYPAIR, params.get());
  return OwnKey(made);
}

// A certificate for a name, valid for a day, and its key. Without an issuer it signs itself and may sign others.
struct TestCertificate {
  explicit TestCertificate(const std::string& name, const TestCertificate* issuer = nullptr, int64_t serial = 1,
                           OwnKey own_key = OwnKey(EVP_EC_gen("P-256")))
      : key(std::move(own_key)), certificate(X509_new()) {
    X509* made = certificate.get();
    X509_set_version(made, 2);
    ASN1_INTEGER_set_int64(X509_get_serialNumber(made), serial);
    X509_gmtime_adj(X509_getm_notBefore(made), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made), 86400);
    X509_set_pubkey(made, key.get());
    X509_NAME* subject = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made, issuer ? X509_get_subject_name(issuer->certificate.get()) : subject);
    extend(NID_basic_constraints, issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    extend(NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_sign(made, issuer ? issuer->key.get() : key.get(), EVP_sha256());
  }

  std::string certificatePem() const {
    return written([this](BIO* out) { PEM_write_bio_X509(out, certificate.get()); });
  }
  // passphrase: empty: the key is not encrypted.
  std::string keyPem(std::string passphrase = "") const {
    return written([&](BIO* out) {
      PEM_write_bio_PrivateKey(out, key.get(), passphrase.empty() ? nullptr : EVP_aes_256_cbc(),
                               reinterpret_cast<unsigned char*>(passphrase.data()), static_cast<int>(passphrase.size()),
                               nullptr, nullptr);
    });
  }
  void write(const std::filesystem::path& cert_file, const std::filesystem::path& key_file) const {
    writeFileAtomically(key_file, keyPem());
    writeFileAtomically(cert_file, certificatePem());
  }

  OwnKey key;
  OwnCertificate certificate;

 private:
  void extend(int nid, const char* value) {
    const std::unique_ptr<X509_EXTENSION, FreeBy<X509_EXTENSION_free>> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, nid, value));
    X509_add_ext(certificate.get(), extension.get(), -1);
  }
  template <typename Write>
  static std::string written(Write write) {
    const std::unique_ptr<BIO, FreeBy<BIO_free_all>> out(BIO_new(BIO_s_mem()));
    write(out.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(out.get(), &data);
    return {data, static_cast<size_t>(size)};
  }
};

// A client over loopback whose reads and handshake give up after kPatience.
class TlsClient {
 public:
  struct Options {
    const TestCertificate* trusted = nullptr;  // null: any server
    const TestCertificate* own = nullptr;      // null: no certificate
    int version = 0;                           // the only one; 0: any
    std::string protocols;                     // ALPN, each with its length before it
    in_addr_t address = INADDR_LOOPBACK;       // its own
  };
  TlsClient(uint16_t port, const Options& options)
      : socket_(connectTo(port, options.address)), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX* ctx = context_.get();
    if (options.trusted != nullptr) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), options.trusted->certificate.get());
      SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, nullptr);
    }
    if (options.own != nullptr) {
      SSL_CTX_use_certificate(ctx, options.own->certificate.get());
      SSL_CTX_use_PrivateKey(ctx, options.own->key.get());
    }
    if (options.version != 0) {
      SSL_CTX_set_security_level(ctx, 0);  // old versions too
      SSL_CTX_set_min_proto_version(ctx, options.version);
      SSL_CTX_set_max_proto_version(ctx, options.version);
    }
    if (!options.protocols.empty()) {
      SSL_CTX_set_alpn_protos(ctx, reinterpret_cast<const unsigned char*>(options.protocols.data()),
                              static_cast<unsigned>(options.protocols.size()));
    }
    ssl_.reset(SSL_new(ctx));
    SSL_set_fd(ssl_.get(), socket_);
    ERR_clear_error();
    connected = SSL_connect(ssl_.get()) == 1;
  }
  ~TlsClient() { close(); }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // A connected socket whose reads give up after kPatience.
  static int connectTo(uint16_t port, in_addr_t own = INADDR_LOOPBACK) {
    const int made = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval timeout{kPatience.count(), 0};
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(own);
    const bool bound = bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bound && ::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return made;
    ::close(made);
    return -1;
  }

  bool send(std::string_view text) {
    ERR_clear_error();
    size_t sent = 0;
    return SSL_write_ex(ssl_.get(), text.data(), text.size(), &sent) == 1;
  }
  // Reads until the marker has arrived or the connection ends; returns all that has come.
  std::string readUntil(std::string_view marker) {
    while (text_.find(marker) == std::string::npos && readSome()) {
    }
    return std::exchange(text_, "");
  }
  // Reads one response with a Content-Length.
  std::string response() {
    while (text_.find("\r\n\r\n") == std::string::npos && readSome()) {
    }
    const size_t head = text_.find("\r\n\r\n"), field = text_.find("content-length: ");
    if (head == std::string::npos || field == std::string::npos) return std::exchange(text_, "");
    const size_t size = head + 4 + std::stoul(text_.substr(field + 16));
    while (text_.size() < size && readSome()) {
    }
    std::string out = text_.substr(0, size);
    text_.erase(0, size);
    return out;
  }
  // Whether the server ended the session in order, not by closing the socket. Call it after everything was read.
  bool endedInOrder() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }
  std::string protocol() const {
    const unsigned char* name = nullptr;
    unsigned length = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &length);
    return {reinterpret_cast<const char*>(name), length};
  }
  int64_t serverSerial() const {
    const OwnCertificate peer(SSL_get1_peer_certificate(ssl_.get()));
    int64_t serial = -1;
    if (peer) ASN1_INTEGER_get_int64(&serial, X509_get0_serialNumber(peer.get()));
    return serial;
  }
  SSL* ssl() { return ssl_.get(); }
  // Frees all but the socket, which stays open until it is closed by the caller.
  int detach() {
    ssl_.reset();
    context_.reset();
    return std::exchange(socket_, -1);
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  bool connected = false;

 private:
  bool readSome() {
    char buffer[16384];
    size_t count = 0;
    ERR_clear_error();
    if (SSL_read_ex(ssl_.get(), buffer, sizeof buffer, &count) != 1) return false;
    text_.append(buffer, count);
    return true;
  }

  int socket_;
  std::unique_ptr<SSL_CTX, FreeBy<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, FreeBy<SSL_free>> ssl_;
  std::string text_;
};

}  // namespace chorus::server
