// The server's side of TLS on one socket, without waiting.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "server/http/hello_limit.h"

struct ssl_st;
struct ssl_ctx_st;

namespace chorus::server {

// Not thread-safe. Does not own the socket, which must not block. The process must ignore SIGPIPE.
class TlsSession {
 public:
  enum class Status {
    kDone,
    kWantsRead,   // call again when the socket can be read
    kWantsWrite,  // call again when the socket can be written
    kEnd,         // the client has ended the session, or closed the connection
    kFailed,      // the session cannot go on
  };
  struct Result {
    Status status = Status::kDone;
    size_t bytes = 0;  // with kDone: of a read or write, at least one
  };

  // context: is shared by the session. Throws std::bad_alloc.
  TlsSession(ssl_ctx_st* context, int socket);
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Must be done before anything else. Takes the next step, which may be a costly one. Fails if the client's first
  // message is longer than HelloLimit allows.
  Result handshake();
  // Whether the handshake can no longer be completed: the socket was shut down or reset, or the client ended its side
  // after its first message. Costs little.
  bool isAbandoned() const;
  // Reads into some of `bytes`, or writes some of them; they must not be empty. After kWantsRead or kWantsWrite a write
  // must be called again with bytes that begin like these.
  Result read(std::span<char> bytes);
  Result write(std::string_view bytes);
  // Whether bytes were taken from the socket that read() has not returned yet.
  bool holdsInput() const;
  // Says to the client that nothing more follows, if the socket has room for that. Reading goes on.
  void endWrites();
  // Whether the handshake failed because the client sent HTTP without TLS.
  bool sawPlainHttp() const { return saw_plain_http_; }

 private:
  struct Free {
    void operator()(ssl_st* ssl) const;
  };
  Result resultOf(int returned, size_t bytes);
  void limitHello();

  HelloLimit hello_limit_;
  std::unique_ptr<ssl_st, Free> ssl_;
  bool begun_ = false;  // a step of the handshake was taken
  bool failed_ = false;
  bool saw_plain_http_ = false;
};

}  // namespace chorus::server
