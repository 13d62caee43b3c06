// What a request's head must satisfy beyond what the HTTP parser requires: rules over its raw bytes, without I/O. What
// two parsers could read differently is refused, because a proxy in front of this server may be the other one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus::server {

// Why a request is refused. The connection ends with it.
struct HeadFault {
  int status;
  std::string_view message;
};

// Looks for the end of a head as its bytes arrive: lines end with CRLF, and no other control character but a tab
// occurs.
class HeadScanner {
 public:
  explicit HeadScanner(size_t max_bytes) : max_bytes_(max_bytes) {}

  struct Result {
    size_t length = 0;  // of the head with its empty line; 0 as long as the end has not arrived
    std::optional<HeadFault> fault;
  };
  // bytes: all that arrived of this head so far, the same beginning in every call.
  Result scan(std::string_view bytes);

 private:
  size_t max_bytes_;
  size_t scanned_ = 0;
};

// How the body of a request is delimited.
struct BodyFraming {
  bool chunked = false;
  uint64_t length = 0;  // unless chunked
  bool expects_continue = false;
};

struct HeadCheck {
  std::optional<HeadFault> fault;
  BodyFraming framing;
};

// head: the request line, the header lines and the empty line, as HeadScanner accepts them. Refuses:
//   request lines that are not "METHOD /target HTTP/1.0" or "... 1.1" with single spaces, targets that are no visible
//   ASCII; whitespace before or in a name or before its colon, continued lines; more than kMostHeaders headers;
//   Host missing in HTTP/1.1, empty or malformed; a second one of a header that may occur once;
//   a Content-Length that is not digits alone, an empty Transfer-Encoding, one in HTTP/1.0 or beside a
//   Content-Length (400), one other than "chunked" (501); an expectation other than "100-continue" (417);
//   a body of a method that has none.
HeadCheck checkHead(std::string_view head);
inline constexpr size_t kMostHeaders = 100;

}  // namespace chorus::server
