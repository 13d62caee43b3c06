#include "server/http/header_checks.h"

#include <gtest/gtest.h>

#include <string>

namespace chorus::server {
namespace {

// Returns the status with which a head is refused, 0 if it is accepted, -1 if it is incomplete.
int statusOf(const std::string& head) {
  HeadScanner scanner(16384);
  const auto found = scanner.scan(head);
  if (found.fault) return found.fault->status;
  if (found.length == 0) return -1;
  const HeadCheck check = checkHead(std::string_view(head).substr(0, found.length));
  return check.fault ? check.fault->status : 0;
}

std::string post(const std::string& lines) { return "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + lines + "\r\n"; }
std::string get(const std::string& lines) { return "GET /v1/models HTTP/1.1\r\n" + lines + "\r\n"; }

TEST(HeaderChecks, RequestLines) {
  const std::string host = "\r\nHost: x\r\n\r\n";
  for (const char* line :
       {"GET / HTTP/1.1", "GET /a?b=c%20d HTTP/1.0", "POST /~a/;x=1 HTTP/1.1", "OPTIONS * HTTP/1.1"}) {
    EXPECT_EQ(statusOf(line + host), 0) << line;
  }
  for (const char* line : {"GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET\t/\tHTTP/1.1", "GET /",
                           "GET / http/1.1", "GET / HTTP/11", "GET / HTTP/1.1.1", "G(T / HTTP/1.1", "GET /a b HTTP/1.1",
                           "GET * HTTP/1.1", "GET http://x/ HTTP/1.1", "CONNECT a:1 HTTP/1.1", "GET /\xc3\xa9 HTTP/1.1",
                           "GET /#a HTTP/1.1", "nonsense", "/ HTTP/1.1", "GET  HTTP/1.1"}) {
    EXPECT_EQ(statusOf(line + host), 400) << line;
  }
  for (const char* line : {"GET / HTTP/1.2", "GET / HTTP/2.0", "PRI * HTTP/2.0", "GET / HTTP/0.9"}) {
    EXPECT_EQ(statusOf(line + host), 505) << line;
  }
}

TEST(HeaderChecks, LinesEndWithCarriageReturnAndLineFeed) {
  EXPECT_EQ(statusOf("GET / HTTP/1.1\nHost: x\n\n"), 400);
  EXPECT_EQ(statusOf("GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"), 400);
  EXPECT_EQ(statusOf("GET / HTTP/1.1\r\nHost: x\r\n\n"), 400);
  EXPECT_EQ(statusOf(get("Host: x\r\nA: b\r\r\n")), 400);
  EXPECT_EQ(statusOf(get("Host: x\r\nA: b\nC: d\r\n")), 400);
  for (int code = 0; code < 0x80; ++code) {
    if (code == '\r' || code == '\n') continue;
    const bool allowed = code == '\t' || (code >= ' ' && code != 0x7f);
    EXPECT_EQ(statusOf(get("Host: x\r\nA: b" + std::string(1, static_cast<char>(code)) + "c\r\n")), allowed ? 0 : 400)
        << code;
  }
  EXPECT_EQ(statusOf(get("Host: x\r\nA: b\xff\r\n")), 0);
  EXPECT_EQ(statusOf("\x16\x03\x01\x02"), 400) << "a TLS handshake is refused at its first byte";
}

TEST(HeaderChecks, TheEndIsFoundInPieces) {
  const std::string head = get("Host: x\r\n");
  const std::string all = head + "body";
  HeadScanner scanner(16384);
  for (size_t n = 1; n < head.size(); ++n) {
    const auto found = scanner.scan(all.substr(0, n));
    EXPECT_EQ(found.length, 0u);
    EXPECT_FALSE(found.fault);
  }
  EXPECT_EQ(scanner.scan(all).length, head.size());
  HeadScanner small(20);
  EXPECT_EQ(small.scan(head.substr(0, 20)).length, 0u);
  EXPECT_EQ(small.scan(head).fault->status, 431);
}

TEST(HeaderChecks, HeaderLines) {
  for (const char* lines : {"A: b\r\n c: d\r\n", "A: b\r\n\tc\r\n", " A: b\r\n", "A : b\r\n", "A\t: b\r\n",
                            "A b: c\r\n", ": b\r\n", "A\r\n", "Transfer-Encoding:\r\n chunked\r\n", "(a): b\r\n"}) {
    EXPECT_EQ(statusOf(get(std::string("Host: x\r\n") + lines)), 400) << lines;
  }
  EXPECT_EQ(statusOf(get("Host: x\r\nA:b\r\nA: c\r\nB:\r\n")), 0) << "other headers may repeat and be empty";
  for (const char* name : {"Content-Type", "Origin", "Authorization", "Expect", "X-Request-Id", "content-encoding"}) {
    const std::string line = std::string(name) + ": 100-continue\r\n";
    EXPECT_EQ(statusOf(get("Host: x\r\n" + line)), 0) << name;
    EXPECT_EQ(statusOf(get("Host: x\r\n" + line + line)), 400) << name;
  }
  std::string many = "Host: x\r\n";
  for (size_t i = 1; i < kMostHeaders; ++i) many += "a: b\r\n";
  EXPECT_EQ(statusOf(get(many)), 0);
  EXPECT_EQ(statusOf(get(many + "a: b\r\n")), 431);
}

TEST(HeaderChecks, HostIsOneAndWellFormed) {
  for (const char* host : {"x", "example.com:8000", "127.0.0.1", "[::1]:80", "[2001:db8::1]", "a_b-c.d"}) {
    EXPECT_EQ(statusOf(get(std::string("Host: ") + host + "\r\n")), 0) << host;
  }
  for (const char* host : {"", " ", "a b", "a@b", "a/b", "x:y", "x:123456", "[::1", "::1", "x,y", "[x]", "\xff"}) {
    EXPECT_EQ(statusOf(get(std::string("Host: ") + host + "\r\n")), 400) << host;
  }
  EXPECT_EQ(statusOf(get("")), 400);
  EXPECT_EQ(statusOf(get("Host: x\r\nHost: x\r\n")), 400);
  EXPECT_EQ(statusOf("GET / HTTP/1.0\r\n\r\n"), 0) << "HTTP/1.0 needs none";
  EXPECT_EQ(statusOf("GET / HTTP/1.0\r\nHost: a b\r\n\r\n"), 400);
}

TEST(HeaderChecks, BodiesAreDelimitedInOneWay) {
  const std::pair<const char*, int> cases[] = {
      {"Content-Length: 5\r\n", 0},
      {"Content-Length: 0\r\n", 0},
      {"Content-Length: 5\r\nContent-Length: 5\r\n", 400},
      {"Content-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"Content-Length: 5, 5\r\n", 400},
      {"Content-Length: +5\r\n", 400},
      {"Content-Length: -5\r\n", 400},
      {"Content-Length: 0x5\r\n", 400},
      {"Content-Length: 5 5\r\n", 400},
      {"Content-Length:\r\n", 400},
      {"Content-Length: 18446744073709551621\r\n", 400},
      {"Transfer-Encoding: chunked\r\n", 0},
      {"Transfer-Encoding: CHUNKED\r\n", 0},
      {"Transfer-Encoding:\tchunked\r\n", 0},
      {"Transfer-Encoding:\r\n", 400},
      {"Transfer-Encoding: \t \r\n", 400},
      {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding:\r\n", 400},
      {"Content-Length: 5\r\nTransfer-Encoding: identity\r\n", 400},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Transfer-Encoding: identity\r\n", 501},
      {"Transfer-Encoding: gzip, chunked\r\n", 501},
      {"Transfer-Encoding: chunked, identity\r\n", 501},
      {"Transfer-Encoding: xchunked\r\n", 501},
      {"Transfer-Encoding: chunked;q=1\r\n", 501},
      {"Expect: 100-continue\r\n", 0},
      {"Expect: tea\r\n", 417},
  };
  for (const auto& [lines, status] : cases) EXPECT_EQ(statusOf(post(lines)), status) << lines;
  EXPECT_EQ(statusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(statusOf("POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n"), 0);
  for (const char* method : {"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"}) {
    const std::string begin = std::string(method) + " / HTTP/1.1\r\nHost: x\r\n";
    EXPECT_EQ(statusOf(begin + "Content-Length: 0\r\n\r\n"), 0) << method;
    EXPECT_EQ(statusOf(begin + "Content-Length: 1\r\n\r\n"), 400) << method;
    EXPECT_EQ(statusOf(begin + "Transfer-Encoding: chunked\r\n\r\n"), 400) << method;
  }
  EXPECT_EQ(checkHead(post("Content-Length: 12\r\n")).framing.length, 12u);
  EXPECT_TRUE(checkHead(post("Transfer-Encoding: chunked\r\n")).framing.chunked);
  EXPECT_TRUE(checkHead(post("Expect: 100-Continue\r\n")).framing.expects_continue);
}

}  // namespace
}  // namespace chorus::server
