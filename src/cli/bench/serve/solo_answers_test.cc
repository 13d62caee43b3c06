#include "cli/bench/serve/solo_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using testing::HasSubstr;

AnswerContent answer(const std::string& text, const std::string& fingerprint = "fp_1") {
  AnswerContent content;
  content.add({{"system_fingerprint", fingerprint}, {"choices", {{{"index", 0}, {"text", text}}}}}, 0);
  return content;
}

TEST(SoloAnswersTest, AnswersAreComparedWithinModelPromptAndWeights) {
  SoloAnswers solo;
  solo.learn(0, 0, answer("zero"));
  solo.learn(0, 1, answer("one"));
  solo.learn(1, 0, answer("other"));
  EXPECT_EQ(solo.compare(0, 0, answer("zero")), Comparison::kEqual);
  EXPECT_EQ(solo.compare(0, 1, answer("one")), Comparison::kEqual);
  EXPECT_EQ(solo.compare(1, 0, answer("other")), Comparison::kEqual);
  EXPECT_EQ(solo.firstDifference(), "");
  EXPECT_EQ(solo.compare(1, 0, answer("zero")), Comparison::kDifferent);
  EXPECT_EQ(solo.compare(0, 1, answer("one ")), Comparison::kDifferent);
  EXPECT_EQ(solo.size(), 3u);
}

TEST(SoloAnswersTest, ReplacedWeightsHaveAnswersOfTheirOwn) {
  SoloAnswers solo;
  solo.learn(0, 0, answer("old", "fp_1"));
  EXPECT_EQ(solo.compare(0, 0, answer("new", "fp_2")), Comparison::kUnknownContent);
  EXPECT_EQ(solo.compare(0, 0, answer("new", "fp_2")), Comparison::kEqual);
  EXPECT_EQ(solo.compare(0, 0, answer("old", "fp_2")), Comparison::kDifferent);
  EXPECT_EQ(solo.compare(0, 0, answer("old", "fp_1")), Comparison::kEqual);
}

TEST(SoloAnswersTest, TheFirstDifferenceIsOneLineWithBothAnswers) {
  SoloAnswers solo;
  const std::string start(500, 'x');
  solo.learn(3, 5, answer(start + "left\n" + start));
  EXPECT_EQ(solo.compare(3, 5, answer(start + "right\n" + start)), Comparison::kDifferent);
  EXPECT_EQ(solo.compare(3, 5, answer("later")), Comparison::kDifferent);
  const std::string line = solo.firstDifference();
  EXPECT_THAT(line, HasSubstr("prompt 5 at byte"));
  EXPECT_THAT(line, HasSubstr("got xxxxxxxxxxxxxxxxxxxxxxxxright"));
  EXPECT_THAT(line, HasSubstr("alone xxxxxxxxxxxxxxxxxxxxxxxxleft"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_LT(line.size(), 300u);
}

}  // namespace
}  // namespace chorus
