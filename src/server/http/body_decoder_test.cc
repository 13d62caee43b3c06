#include "server/http/body_decoder.h"

#include <gtest/gtest.h>

#include <string>

namespace chorus::server {
namespace {

struct Decoded {
  std::string body;
  size_t used = 0;
  bool done = false, fault = false;
};

// Feeds `bytes` to a decoder in pieces of at most `piece` bytes.
Decoded decode(const std::string& bytes, size_t piece, const BodyFraming& framing = {.chunked = true}) {
  BodyDecoder decoder(framing);
  Decoded out;
  for (size_t have = std::min(piece, bytes.size()); !decoder.done() && !decoder.fault();) {
    const auto step = decoder.next(std::string_view(bytes).substr(out.used, have - out.used));
    out.body += step.data;
    out.used += step.used;
    if (step.used > 0) continue;
    if (have == bytes.size()) break;
    have = std::min(have + piece, bytes.size());
  }
  out.done = decoder.done();
  out.fault = decoder.fault().has_value();
  return out;
}

TEST(BodyDecoder, LengthIsExact) {
  const Decoded whole = decode("hello, next", 4, {.length = 5});
  EXPECT_TRUE(whole.done);
  EXPECT_EQ(whole.body, "hello");
  EXPECT_EQ(whole.used, 5u);
  EXPECT_FALSE(decode("hell", 4, {.length = 5}).done);
  EXPECT_TRUE(BodyDecoder(BodyFraming{}).done());
}

TEST(BodyDecoder, ChunksInAnyPieces) {
  const std::string body = "5\r\nhello\r\n3;a=\"b\";c\r\n wo\r\n01\r\nr\r\n0;x\r\nX-Trailer: y\r\nB: c\r\n\r\n";
  for (size_t piece = 1; piece <= body.size() + 4; ++piece) {
    const Decoded decoded = decode(body + "GET ", piece);
    EXPECT_TRUE(decoded.done) << piece;
    EXPECT_EQ(decoded.body, "hello wor");
    EXPECT_EQ(decoded.used, body.size());
  }
}

TEST(BodyDecoder, FramingThatOtherParsersMightReadDifferentlyIsRefused) {
  using namespace std::string_literals;
  for (const std::string& body : {"5\nhello\n0\n\n"s,
                                  "5\r\nhello\n0\r\n\r\n"s,
                                  "5\rhello"s,
                                  "0x5\r\nhello\r\n"s,
                                  " 5\r\nhello\r\n"s,
                                  "5 \r\nhello\r\n"s,
                                  "5\t;a\r\nhello\r\n"s,
                                  "5;a\nhello\r\n"s,
                                  "5;a\x01\r\nhello\r\n"s,
                                  "5;a\0b\r\nhello\r\n"s,
                                  "+5\r\nhello\r\n"s,
                                  "-5\r\n"s,
                                  "\r\n5\r\nhello\r\n"s,
                                  "g\r\n"s,
                                  "00000000000000005\r\nhello\r\n"s,
                                  "5\r\nhelloXX0\r\n\r\n"s,
                                  "5\r\nhello0\r\n\r\n"s,
                                  "5,5\r\nhello\r\n"s,
                                  "0\r\nno colon\r\n\r\n"s,
                                  "0\r\n: x\r\n\r\n"s,
                                  "0\r\n folded: x\r\n\r\n"s,
                                  "0\r\nA: b\n\r\n"s,
                                  "0\r\n\n"s}) {
    for (const size_t piece : {size_t{1}, size_t{3}, body.size()}) {
      const Decoded decoded = decode(body, piece);
      EXPECT_TRUE(decoded.fault) << testing::PrintToString(body);
      EXPECT_FALSE(decoded.done);
    }
  }
}

TEST(BodyDecoder, FramingIsBounded) {
  EXPECT_TRUE(decode("5;" + std::string(BodyDecoder::kMaxChunkLine, 'x') + "\r\nhello\r\n0\r\n\r\n", 100).fault);
  EXPECT_TRUE(decode("5;" + std::string(BodyDecoder::kMaxChunkLine + 100, 'x'), 100).fault) << "before the line ends";
  EXPECT_TRUE(decode("0\r\n" + std::string(BodyDecoder::kMaxTrailerBytes + 10, 'x'), 100).fault);
  std::string trailers = "0\r\n", extended, tiny;
  for (size_t i = 0; i < BodyDecoder::kMaxTrailerBytes / 6 + 2; ++i) trailers += "a: b\r\n";
  EXPECT_TRUE(decode(trailers + "\r\n", 1000).fault);
  for (size_t i = 0; i < 200; ++i) extended += "1;" + std::string(200, 'x') + "\r\na\r\n";
  EXPECT_TRUE(decode(extended + "0\r\n\r\n", 1000).fault) << "long extensions of tiny chunks";
  for (size_t i = 0; i < 20000; ++i) tiny += "1\r\na\r\n";
  EXPECT_TRUE(decode(tiny + "0\r\n\r\n", 100000).done) << "tiny chunks alone are allowed";
}

}  // namespace
}  // namespace chorus::server
