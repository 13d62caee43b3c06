// Checks of the raw bytes of a request's head, stricter than the HTTP parser's; no I/O. Everything that two parsers
// could read differently is refused, because a proxy in front of this server may be the other parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace chorus::server {

// Why a request is refused. The connection is closed after the answer.
struct HeadFault {
  int status;
  std::string_view message;
};

// Finds the end of a head while its bytes arrive. Lines must end with CRLF, and a tab is the only other control
// character that may occur.
class HeadScanner {
 public:
  explicit HeadScanner(size_t max_bytes) : max_bytes_(max_bytes) {}

  struct Result {
    size_t length = 0;  // bytes of the head with its empty line; 0 while its end has not arrived
    std::optional<HeadFault> fault;
  };
  // bytes: everything received of this head so far; each call has the bytes of the previous call at its beginning.
  Result scan(std::string_view bytes);

 private:
  size_t max_bytes_;
  size_t scanned_ = 0;
};

// Describes how the body of a request is delimited.
struct BodyFraming {
  bool chunked = false;
  uint64_t length = 0;  // in bytes; unused if chunked
  bool expects_continue = false;
};

struct HeadCheck {
  std::optional<HeadFault> fault;
  BodyFraming framing;
};

// head: the request line, the header lines and the empty line, as HeadScanner accepts them. Refuses, with status 400
// unless noted:
// - a request line that is not "METHOD /target HTTP/1.0" or "... 1.1" with single spaces (505 for another version), and
//   a target with characters that are not visible ASCII;
// - whitespace before or in a header's name or before its colon, and continued lines;
// - more than kMostHeaders headers (431);
// - a Host header that is empty, malformed, or missing in HTTP/1.1;
// - a second occurrence of a header that may occur once;
// - a Content-Length that is not digits alone;
// - a Transfer-Encoding that is empty, in HTTP/1.0, beside a Content-Length, or not "chunked" (501);
// - an expectation other than "100-continue" (417);
// - a body with a method that has none.
HeadCheck checkHead(std::string_view head);
inline constexpr size_t kMostHeaders = 100;

// A field's value without the spaces and tabs around it (OWS of RFC 9110).
std::string_view withoutOptionalSpace(std::string_view text);

}  // namespace chorus::server
