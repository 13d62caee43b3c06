#include "server/http/tls_certificates.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/http/hello_limit.h"

namespace chorus::server {
namespace {

// OpenSSL's reason for the last failure in this thread.
std::string reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* text = ERR_reason_error_string(code);
  return text != nullptr ? text : "unknown error";
}

[[noreturn]] void refuse(std::string_view flag, const std::string& file, const std::string& why) {
  fail(ErrorCode::kInvalidArgument, "{} {}: {}", flag, file, why);
}

void checkReadable(std::string_view flag, const std::string& file) {
  try {
    constexpr size_t kMostBytes = size_t{1} << 20;
    readFile(file, kMostBytes);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", flag, error.what());
  }
}

// OpenSSL would ask for a passphrase on the terminal.
int noPassphrase(char*, int, int, void*) { return -1; }

// Chooses HTTP/1.1 from a client's list of protocols. A client that offers only others would not understand the
// answers.
int chooseProtocol(SSL*, const unsigned char** out, unsigned char* length, const unsigned char* offered,
                   unsigned int offered_length, void*) {
  static constexpr std::string_view kProtocols = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, length, reinterpret_cast<const unsigned char*>(kProtocols.data()),
                            kProtocols.size(), offered, offered_length) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// Refuses endless lists of cipher suites. A client names a suite in 2 bytes; OpenSSL keeps 8 more for each of them,
// also for repetitions, until the connection ends.
int limitSuites(SSL* ssl, int* alert, void*) {
  constexpr size_t kMostBytes = 1024;  // clients know about a hundred suites
  const unsigned char* suites = nullptr;
  if (SSL_client_hello_get0_ciphers(ssl, &suites) <= kMostBytes) return SSL_CLIENT_HELLO_SUCCESS;
  *alert = SSL_AD_ILLEGAL_PARAMETER;
  return SSL_CLIENT_HELLO_ERROR;
}

std::shared_ptr<ssl_ctx_st> load(const TlsFiles& files) {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), [](SSL_CTX* ended) { SSL_CTX_free(ended); });
  if (context == nullptr) throw std::bad_alloc();
  SSL_CTX* ctx = context.get();
  SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
  SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // An idle session keeps no buffers. A write may be continued from another place in memory.
  SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A client's certificates are as long as a ClientHello at most.
  SSL_CTX_set_max_cert_list(ctx, HelloLimit::kMostBytes);
  // A read returns after each message that is not data, so that endless messages do not keep a network thread.
  SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
  // Clients keep what they need to resume a session; the server keeps nothing for clients that are gone.
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  static constexpr std::array<unsigned char, 6> kSessions = {'c', 'h', 'o', 'r', 'u', 's'};
  SSL_CTX_set_session_id_context(ctx, kSessions.data(), kSessions.size());
  SSL_CTX_set_client_hello_cb(ctx, limitSuites, nullptr);
  SSL_CTX_set_alpn_select_cb(ctx, chooseProtocol, nullptr);
  SSL_CTX_set_default_passwd_cb(ctx, noPassphrase);

  ERR_clear_error();
  checkReadable("--tls_cert_file", files.cert);
  if (SSL_CTX_use_certificate_chain_file(ctx, files.cert.c_str()) != 1) {
    refuse("--tls_cert_file", files.cert, "no certificate in PEM form (" + reason() + ")");
  }
  checkReadable("--tls_key_file", files.key);
  if (SSL_CTX_use_PrivateKey_file(ctx, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    const bool other = ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH ||
                       ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_TYPE_MISMATCH;
    refuse("--tls_key_file", files.key,
           other ? "it is not the key of the certificate in " + files.cert
                 : "no private key in PEM form without a passphrase (" + reason() + ")");
  }
  if (SSL_CTX_check_private_key(ctx) != 1) {
    refuse("--tls_key_file", files.key, "it is not the key of the certificate in " + files.cert);
  }
  if (files.client_ca.empty()) return context;
  checkReadable("--tls_client_ca_file", files.client_ca);
  if (SSL_CTX_load_verify_file(ctx, files.client_ca.c_str()) != 1) {
    refuse("--tls_client_ca_file", files.client_ca, "no certificates in PEM form (" + reason() + ")");
  }
  STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(files.client_ca.c_str());
  if (names != nullptr) SSL_CTX_set_client_CA_list(ctx, names);
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

}  // namespace

TlsCertificates::TlsCertificates(TlsFiles files) : files_(std::move(files)) {
  if (files_.cert.empty()) fail(ErrorCode::kInvalidArgument, "--tls_key_file needs --tls_cert_file");
  if (files_.key.empty()) fail(ErrorCode::kInvalidArgument, "--tls_cert_file needs --tls_key_file");
  stamps_ = stamps();
  context_ = load(files_);
}

TlsCertificates::~TlsCertificates() = default;

std::unique_ptr<TlsSession> TlsCertificates::begin(int socket) const {
  std::shared_ptr<ssl_ctx_st> context;
  {
    const std::lock_guard lock(mutex_);
    context = context_;
  }
  return std::make_unique<TlsSession>(context.get(), socket);
}

TlsCertificates::Stamps TlsCertificates::stamps() const {
  Stamps stamps;
  for (const std::string& file : {files_.cert, files_.key, files_.client_ca}) {
    stamps.push_back(file.empty() ? std::nullopt : stampOf(file));
  }
  return stamps;
}

void TlsCertificates::refresh(bool forced) {
  try {
    const Stamps now = stamps();
    if (!forced && now == stamps_) return;
    stamps_ = now;
    auto loaded = load(files_);
    {
      const std::lock_guard lock(mutex_);
      context_ = std::move(loaded);
    }
    fault_.clear();
    log::info("new TLS certificate from {}", files_.cert);
  } catch (const std::exception& error) {
    if (std::exchange(fault_, error.what()) == error.what() && !forced) return;
    log::error("the TLS certificate stays as it was: {}", error.what());
  }
}

}  // namespace chorus::server
