#include "cli/bench/serve/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace chorus {
namespace {

using testing::ElementsAre;

// Feeds the parser in pieces of `piece` bytes.
std::vector<std::string> eventsOf(std::string_view bytes, size_t piece) {
  std::vector<std::string> events;
  SseParser parser([&](std::string_view data) { events.emplace_back(data); });
  for (size_t i = 0; i < bytes.size(); i += piece) parser.feed(bytes.substr(i, piece));
  return events;
}

TEST(SseParserTest, PiecesOfAnySize) {
  const std::string_view stream =
      "data: {\"a\": 1}\n\n: comment\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\nid\ndata\n\ndata:  [DONE]\r\rdata: "
      "lost";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_THAT(eventsOf(stream, piece), ElementsAre("{\"a\": 1}", "two\nlines", "", " [DONE]")) << piece;
  }
}

TEST(SseParserTest, OtherFieldsAreNoData) {
  EXPECT_THAT(eventsOf("dat: x\n\ndata2: y\n\n data: z\n\nDATA: w\n\n", 3), ElementsAre());
}

TEST(SseParserTest, EndlessEventsAreRefused) {
  const std::string line(size_t{1} << 20, 'x');
  SseParser one([](std::string_view) { FAIL(); });
  EXPECT_THROW(for (int i = 0; i < 17; ++i) one.feed(line), Error);
  SseParser many([](std::string_view) { FAIL(); });
  EXPECT_THROW(for (int i = 0; i < 17; ++i) many.feed("data: " + line + "\n"), Error);
}

}  // namespace
}  // namespace chorus
