#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace chorus {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(makeLogger(std::make_shared<spdlog::sinks::ostream_sink_mt>(out_)));
  }
  ~LogTest() override { spdlog::set_default_logger(before_); }
  std::string taken() {
    spdlog::default_logger()->flush();
    std::string text = out_.str();
    out_.str("");
    return text;
  }

  std::ostringstream out_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(LogTest, AMessageIsOnePrintableLine) {
  std::string evil = "evil\n12:00:00.000 error forged\x1b]0;title\x07\xe2\x80";
  evil += '\xae';  // completes U+202E, which clang-tidy refuses in a literal
  log::warn("adapter left out: {}", evil);
  const std::string line = taken();
  EXPECT_THAT(line, testing::EndsWith(
                        " warning adapter left out: evil\\n12:00:00.000 error forged\\x1b]0;title\\x07\\u{202e}\n"));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST_F(LogTest, PlainMessagesStayAsTheyAre) {
  log::info("ready at {}", "http://127.0.0.1:8000");
  EXPECT_THAT(taken(), testing::EndsWith(" info ready at http://127.0.0.1:8000\n"));
}

TEST_F(LogTest, LogLinesHaveADate) {
  log::info("ready");
  const std::string line = taken();
  EXPECT_THAT(
      line, testing::MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+[+-][0-9]+:[0-9]+ info ready\n"));
}

TEST_F(LogTest, AMessageIsBounded) {
  log::info("{}", std::string(1 << 20, 'x'));
  EXPECT_LT(taken().size(), size_t{17} << 10);
}

TEST_F(LogTest, EachRowOfATableIsALine) {
  infoLines("first\n  second\x1b\nthird\n");
  const std::string text = taken();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, testing::HasSubstr(" info   second\\x1b\n"));
}

}  // namespace
}  // namespace chorus
