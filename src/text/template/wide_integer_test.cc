// Integers beyond 64 bits in templates behave as in Python or give one error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/error.h"
#include "base/exact_json.h"
#include "text/chat_template.h"

namespace chorus {
namespace {

// Renders with the variables in the JSON object; returns the rendering, or "error: " and the error's message.
std::string attempt(const std::string& text, const std::string& variables = "{}") {
  ChatTemplateInput input;
  input.variables = parseExactJson(variables, "test");
  try {
    return ChatTemplate::compile(text, "test")->render(input);
  } catch (const Error& e) {
    return std::string("error: ") + e.what();
  }
}

TEST(WideIntegers, IntegersOfRequestsKeepAllTheirDigits) {
  const std::string variables =
      R"({"a": 18446744073709551615, "b": 123456789012345678901234567890, "c": -9223372036854775809, "d": -9223372036854775808})";
  EXPECT_EQ(attempt("{{ a }} {{ b }} {{ c }} {{ d }}", variables),
            "18446744073709551615 123456789012345678901234567890 -9223372036854775809 -9223372036854775808");
  EXPECT_EQ(attempt("{{ {'k': [a, b]} | tojson }}", variables),
            R"({"k": [18446744073709551615, 123456789012345678901234567890]})");
  EXPECT_EQ(attempt("{{ {b: 1} | tojson }} {{ [c] }} {{ b ~ 'x' }} {{ '%s' % b }}", variables),
            R"({"123456789012345678901234567890": 1} [-9223372036854775809] 123456789012345678901234567890x )"
            "123456789012345678901234567890");
  EXPECT_EQ(attempt("{{ 'y' if b else 'n' }} {{ b is number }} {{ b is integer }} {{ b is float }} {{ b is string }}",
                    variables),
            "y True True False False");
}

TEST(WideIntegers, LiteralsAndTextsKeepAllDigitsOfIntegers) {
  EXPECT_EQ(attempt("{{ 123_456_789_012_345_678_901_234 }}"), "123456789012345678901234");
  EXPECT_EQ(attempt("{{ -9223372036854775808 }} {{ -9223372036854775809 }} {{ - -9223372036854775808 }}"),
            "-9223372036854775808 -9223372036854775809 9223372036854775808");
  EXPECT_EQ(attempt("{{ ' +0099999999999999999999999 ' | int }}"), "99999999999999999999999");
  EXPECT_EQ(attempt("{{ '-99999999999999999999999' | int | abs }}"), "99999999999999999999999");
  EXPECT_EQ(attempt("{{ 1e30 | int }} {{ -1e19 | int }}"), "1000000000000000019884624838656 -10000000000000000000");
  EXPECT_EQ(attempt("{{ 99999999999999999999999 | float }}"), "1e+23");
  EXPECT_EQ(attempt("{{ '%d' % -99999999999999999999 }} {{ '%+d' % 1e19 }}"),
            "-99999999999999999999 +10000000000000000000");
  EXPECT_EQ(attempt("{{ 99999999999999999999999 | round }}"),
            "error: test line 1: type int of more than 64 bits doesn't define __round__ method");
}

TEST(WideIntegers, AreComparedAsPythonDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"18446744073709551616 == 18446744073709551616", "True"},
      {"18446744073709551616 == 18446744073709551617", "False"},
      {"18446744073709551616 == 1", "False"},
      {"18446744073709551616 == 18446744073709551616.0", "True"},
      {"18446744073709551617 == 18446744073709551616.0", "False"},
      {"18446744073709551616 > 1", "True"},
      {"-18446744073709551616 < -9223372036854775808", "True"},
      {"-18446744073709551616 > 5", "False"},
      {"18446744073709551616 < 123456789012345678901234", "True"},
      {"-18446744073709551616 < -123456789012345678901234", "False"},
      {"18446744073709551616 <= 18446744073709551616", "True"},
      {"18446744073709551616 < 1e30", "True"},
      {"18446744073709551616 > 0.5", "True"},
      {"99999999999999999999 in [1, 99999999999999999999]", "True"},
      {"{99999999999999999999: 'x'}[99999999999999999999]", "x"},
      {"{1e30: 'x'}[1000000000000000019884624838656]", "x"},
      {"[3, 99999999999999999999, -99999999999999999999, 1.5] | sort",
       "[-99999999999999999999, 1.5, 3, 99999999999999999999]"},
      {"[99999999999999999999, 1] | max", "99999999999999999999"},
  };
  for (const auto& [expression, expected] : cases) {
    EXPECT_EQ(attempt(std::string("{{ ") + expression + " }}"), expected) << expression;
  }
}

TEST(WideIntegers, ArithmeticWithWideIntegersIsAnError) {
  const std::pair<const char*, const char*> cases[] = {
      {"9223372036854775807 + 1", "the result is an integer that doesn't fit 64 bits"},
      {"2 ** 64", "the result is an integer that doesn't fit 64 bits"},
      {"99999999999999999999 + 1", "unsupported operand type(s) for +: 'int of more than 64 bits' and 'int'"},
      {"[99999999999999999999, 1] | sum", "unsupported operand type(s) for +"},
      {"range(99999999999999999999)", "range() needs an integer, not int of more than 64 bits"},
      {"'abc'[:99999999999999999999]", "slice indices must be integers"},
      {"99999999999999999999 is even", "unsupported operand type(s) for %: 'int of more than 64 bits' and 'int'"},
      {"'%x' % 99999999999999999999", "doesn't fit int of more than 64 bits"},
      {"0xfffffffffffffffff", "a number of base 16 that doesn't fit 64 bits"},
      {"'fffffffffffffffff' | int(base=16)", "an integer of base 16 doesn't fit 64 bits"},
      {"('9' * 4301) | int", "an integer has 4301 digits; the limit is 4300"},
  };
  for (const auto& [expression, expected] : cases) {
    EXPECT_THAT(attempt(std::string("{{ ") + expression + " }}"),
                testing::AllOf(testing::StartsWith("error: "), testing::HasSubstr(expected)))
        << expression;
  }
  EXPECT_THAT(attempt("{{ " + std::string(4301, '9') + " }}"), testing::HasSubstr("a number of more than 4300 digits"));
}

TEST(WideIntegers, IntegersAreRoundedExactly) {
  EXPECT_EQ(
      attempt("{{ 9007199254740993 | round(-1) }} {{ 25 | round(-1) }} {{ 35 | round(-1) }} {{ -25 | round(-1) }}"),
      "9007199254740990 20 40 -20");
  EXPECT_EQ(
      attempt("{{ 9223372036854775807 | round(-1) }} {{ 9223372036854775807 | round(-19) }} {{ 5 | round(-30) }}"),
      "9223372036854775810 10000000000000000000 0");
}

}  // namespace
}  // namespace chorus
