#include "server/http/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <new>

namespace chorus::server {

void TlsSession::Free::operator()(ssl_st* ssl) const { SSL_free(ssl); }

TlsSession::TlsSession(ssl_ctx_st* context, int socket) : ssl_(SSL_new(context)) {
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), socket) != 1) throw std::bad_alloc();
  limitHello();
}

// OpenSSL has no setting for the length of a ClientHello: it allocates up to 128 KiB once the message's header has
// come. So a callback looks at what OpenSSL reads from the socket until the handshake is done, and makes the read fail.
// A client may send two, the second one if the server asks for another key. Both come unencrypted, in any number of
// records. Once TLS 1.2 is chosen, OpenSSL accepts no second one. All other messages of a handshake have limits in
// OpenSSL, the certificates' by SSL_CTX_set_max_cert_list().
void TlsSession::limitHello() {
  BIO* socket = SSL_get_rbio(ssl_.get());
  BIO_set_callback_arg(socket, reinterpret_cast<char*>(this));
  BIO_set_callback_ex(
      socket, [](BIO* bio, int operation, const char* bytes, size_t, int, long, int returned, size_t* count) -> long {
        if (operation != (BIO_CB_READ | BIO_CB_RETURN) || returned <= 0) return returned;
        auto* session = reinterpret_cast<TlsSession*>(BIO_get_callback_arg(bio));
        if (SSL_version(session->ssl_.get()) < TLS1_3_VERSION) return returned;
        const bool accepted = session->hello_limit_.accepts({reinterpret_cast<const unsigned char*>(bytes), *count});
        return accepted ? returned : -1;
      });
}

// OpenSSL reads errors from a queue of the thread, in which earlier ones of other sessions must not remain.
TlsSession::Result TlsSession::resultOf(int returned, size_t bytes) {
  if (returned > 0) return {Status::kDone, bytes};
  switch (SSL_get_error(ssl_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
      return {Status::kWantsRead};
    case SSL_ERROR_WANT_WRITE:
      return {Status::kWantsWrite};
    case SSL_ERROR_ZERO_RETURN:
      return {Status::kEnd};
    default:
      break;
  }
  failed_ = true;
  const int reason = ERR_GET_REASON(ERR_peek_error());
  saw_plain_http_ = reason == SSL_R_HTTP_REQUEST;
  return {reason == SSL_R_UNEXPECTED_EOF_WHILE_READING ? Status::kEnd : Status::kFailed};
}

TlsSession::Result TlsSession::handshake() {
  begun_ = true;
  ERR_clear_error();
  const Result result = resultOf(SSL_accept(ssl_.get()), 0);
  if (result.status == Status::kDone) BIO_set_callback_ex(SSL_get_rbio(ssl_.get()), nullptr);
  return result;
}

bool TlsSession::isAbandoned() const {
  pollfd socket{.fd = SSL_get_fd(ssl_.get()), .events = POLLRDHUP, .revents = 0};
  if (poll(&socket, 1, 0) <= 0) return false;
  if ((socket.revents & (POLLHUP | POLLERR)) != 0) return true;
  // The client must still answer the server's first message. One that speaks HTTP without TLS is answered nevertheless.
  constexpr char kHandshakeRecord = 22;
  char first = 0;
  return !begun_ && recv(socket.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == kHandshakeRecord;
}

TlsSession::Result TlsSession::read(std::span<char> bytes) {
  ERR_clear_error();
  size_t count = 0;
  const int returned = SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &count);
  return resultOf(returned, count);
}

TlsSession::Result TlsSession::write(std::string_view bytes) {
  ERR_clear_error();
  size_t count = 0;
  const int returned = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &count);
  return resultOf(returned, count);
}

bool TlsSession::holdsInput() const { return SSL_has_pending(ssl_.get()) == 1; }

// After a failure OpenSSL allows no more calls that write.
void TlsSession::endWrites() {
  if (failed_ || SSL_is_init_finished(ssl_.get()) == 0) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
}

}  // namespace chorus::server
