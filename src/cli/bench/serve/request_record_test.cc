#include "cli/bench/serve/request_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using testing::ElementsAre;

class StreamRecorderTest : public testing::Test {
 protected:
  void at(double time, std::string_view bytes) {
    time_ = time;
    recorder_.onBody(bytes);
  }
  void event(double time, const std::string& data) { at(time, "data: " + data + "\n\n"); }
  void end(double time, CallEnd how, std::string_view reason = "") {
    time_ = time;
    recorder_.onEnd(how, reason);
    EXPECT_EQ(ended_, 1);
  }

  RequestRecord record_{.planned = 1.0, .sent = 1.25};
  double time_ = 0;
  int ended_ = 0;
  StreamRecorder::Ended ended_as_;
  AnswerContent content_;
  StreamRecorder recorder_{record_, [this] { return time_; },
                           [this](const StreamRecorder::Ended& ended) {
                             ++ended_;
                             ended_as_ = ended;
                           },
                           &content_};
};

TEST_F(StreamRecorderTest, CompletionStream) {
  recorder_.onHead({.status = 200});
  at(2.0, "data: {\"choices\":[{\"text\":\"a\"}],\"us");
  EXPECT_EQ(record_.first, -1);
  at(2.5, "age\":null}\n\n");
  event(3.0, R"({"choices":[{"text":"b"}]})");
  event(3.25, R"({"choices":[{"text":"","finish_reason":"length"}]})");
  event(3.5, R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}})");
  event(3.75, "[DONE]");
  end(4.0, CallEnd::kComplete);
  EXPECT_TRUE(record_.complete());
  EXPECT_EQ(record_.timeToFirst(), 1.5) << "from the planned time";
  EXPECT_THAT(record_.gaps, ElementsAre(0.5));
  EXPECT_EQ(record_.latency(), 3.0);
  EXPECT_EQ(record_.output_tokens, 5);
  EXPECT_EQ(record_.prompt_tokens, 7);
  EXPECT_EQ(record_.timePerToken(), 0.5 / 4);
  EXPECT_EQ(ended_as_.status, 200);
  EXPECT_THAT(content_.canonical(), testing::HasSubstr(R"("text":"ab")"));
}

TEST_F(StreamRecorderTest, ChatStreamWithoutUsage) {
  recorder_.onHead({.status = 200});
  event(2.0, R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
  event(3.0, R"({"choices":[{"delta":{"content":"x"}}]})");
  event(4.0, R"({"choices":[{"delta":{"content":"y"}}]})");
  event(4.0, "[DONE]");
  end(4.0, CallEnd::kComplete);
  EXPECT_EQ(record_.first, 3.0) << "a role is no token";
  EXPECT_EQ(record_.output_tokens, 2);
}

TEST_F(StreamRecorderTest, RefusalsHaveStatusAndMessage) {
  recorder_.onHead({.status = 429, .headers = {{"retry-after", "2"}}});
  at(2.0, R"({"error":{"message":"too)");
  at(2.0, R"( many","type":"x"}})");
  end(2.0, CallEnd::kComplete);
  EXPECT_EQ(record_.error, "status 429");
  EXPECT_EQ(record_.error_text, "too many");
  EXPECT_EQ(ended_as_.status, 429);
  EXPECT_EQ(ended_as_.retry_after, std::chrono::seconds(2));
  EXPECT_FALSE(record_.complete());
}

TEST_F(StreamRecorderTest, RefusalsThatAreNoJsonAreQuotedInOneLine) {
  recorder_.onHead({.status = 502});
  at(2.0, "<html>\nbad\x01 gateway</html>" + std::string(100'000, 'x'));
  end(2.0, CallEnd::kComplete);
  EXPECT_EQ(record_.error, "status 502");
  EXPECT_LT(record_.error_text.size(), 300u);
  EXPECT_EQ(record_.error_text.find('\n'), std::string::npos);
}

TEST_F(StreamRecorderTest, ErrorsWithinAStream) {
  recorder_.onHead({.status = 200});
  event(2.0, R"({"choices":[{"text":"a"}]})");
  event(3.0, R"({"error":{"message":"engine failed"}})");
  event(3.0, "[DONE]");
  end(3.0, CallEnd::kComplete);
  EXPECT_EQ(record_.error, "stream error");
  EXPECT_EQ(record_.error_text, "engine failed");
}

TEST_F(StreamRecorderTest, StreamsThatEndTooSoon) {
  recorder_.onHead({.status = 200});
  event(2.0, R"({"choices":[{"text":"a"}]})");
  end(3.0, CallEnd::kComplete);
  EXPECT_EQ(record_.error, "incomplete stream");
}

TEST_F(StreamRecorderTest, NonsenseIsCountedNotFatal) {
  recorder_.onHead({.status = 200});
  event(2.0, std::string(100'000, '['));
  event(2.0, "7");
  event(2.0, R"({"choices":7,"usage":[]})");
  event(2.0, R"({"choices":[7,{"text":7},{"delta":7},{"delta":{"content":7}}],"usage":{"completion_tokens":-4}})");
  event(2.0, R"({"choices":[],"usage":{"completion_tokens":1e300}})");
  event(2.0, "[DONE]");
  end(2.0, CallEnd::kComplete);
  EXPECT_EQ(record_.error, "bad stream");
  EXPECT_EQ(record_.output_tokens, 0);
}

TEST_F(StreamRecorderTest, ConnectionsThatFail) {
  end(3.0, CallEnd::kRefused, "Connection refused");
  EXPECT_EQ(record_.error, "no connection");
  EXPECT_EQ(record_.error_text, "Connection refused");
  EXPECT_EQ(ended_as_.status, 0);
  EXPECT_EQ(record_.first, -1);
}

}  // namespace
}  // namespace chorus
