// The certificate of a TLS server, its key, and the authorities whose clients it accepts.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "server/http/tls_session.h"

struct ssl_ctx_st;

namespace chorus::server {

// PEM files.
struct TlsFiles {
  std::string cert;       // the server's certificate, then the chain that signs it
  std::string key;        // its private key, without a passphrase
  std::string client_ca;  // empty: clients need no certificate
};

// Thread-safe. Sessions keep the certificate with which they began.
class TlsCertificates {
 public:
  // Throws Error (kNotFound, kCorrupt or kInvalidArgument) that names flag and file.
  explicit TlsCertificates(TlsFiles files);
  ~TlsCertificates();

  // Begins a session on a connected socket: TLS 1.2 or newer, ALPN only for HTTP/1.1. Throws std::bad_alloc.
  std::unique_ptr<TlsSession> begin(int socket) const;

  // Reads the files again if one of them has changed, or in any case with `forced`. If they cannot be used, the old
  // ones stay, and the log has one line for each such state of the files.
  void refresh(bool forced = false);

 private:
  using Stamps = std::vector<std::optional<FileStamp>>;
  Stamps stamps() const;

  const TlsFiles files_;
  mutable std::mutex mutex_;  // guards context_
  std::shared_ptr<ssl_ctx_st> context_;
  // Used by refresh() alone.
  Stamps stamps_;
  std::string fault_;
};

}  // namespace chorus::server
