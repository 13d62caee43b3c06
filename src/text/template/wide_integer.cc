#include "text/template/wide_integer.h"

#include <charconv>
#include <cmath>
#include <iterator>

namespace chorus::tmpl {
namespace {

constexpr double kTwoTo63 = 9223372036854775808.0;

bool isNegative(const Value& v) {
  if (v.isWideInteger()) return v.digits().starts_with('-');
  return v.isInteger() ? v.integer() < 0 : v.number() < 0;
}

// Digits without a sign; empty for a number within 64 bits, which is nearer to zero than every wide integer.
std::string magnitudeOf(Runtime& rt, const Value& v) {
  if (v.isWideInteger()) rt.charge(2 * v.digits().size());
  std::string digits = v.isWideInteger() ? std::string(v.digits()) : v.isInteger() ? "" : wideDigitsOf(rt, v.number());
  if (digits.starts_with('-')) digits.erase(0, 1);
  return digits;
}

}  // namespace

Value integerOfDigits(Runtime& rt, std::string_view digits) {
  rt.charge(2 * digits.size());
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t integer = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), integer).ec == std::errc()) return Value(integer);
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.size() > kMaxDigits) raise("an integer has {} digits; the limit is {}", digits.size(), kMaxDigits);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return Value::wideInteger(negative ? rt.concat("-", digits).string() : rt.text(digits).string());
}

std::string wideDigitsOf(Runtime& rt, double number) {
  if (!std::isfinite(number) || (number >= -kTwoTo63 && number < kTwoTo63)) return "";
  // std::to_chars takes 0.4 us for 309 digits; fmt takes 31 us.
  rt.charge(512);
  char digits[320];
  return {digits, std::to_chars(digits, std::end(digits), number, std::chars_format::fixed, 0).ptr};
}

bool wideEqualsFloat(Runtime& rt, const Value& wide, const Value& number) {
  return wide.isWideInteger() && number.kind() == Kind::kFloat && wide.digits() == wideDigitsOf(rt, number.number());
}

bool wideLess(Runtime& rt, const Value& a, const Value& b) {
  const auto is = [](const Value& v, bool (*what)(double)) { return v.kind() == Kind::kFloat && what(v.number()); };
  const auto nan = [](double d) { return std::isnan(d); };
  const auto infinite = [](double d) { return std::isinf(d); };
  if (is(a, nan) || is(b, nan)) return false;
  if (is(a, infinite)) return isNegative(a);
  if (is(b, infinite)) return !isNegative(b);
  const bool negative = isNegative(a);
  if (negative != isNegative(b)) return negative;
  const std::string x = magnitudeOf(rt, a), y = magnitudeOf(rt, b);
  if (x == y) return false;
  const bool nearer_to_zero = x.size() != y.size() ? x.size() < y.size() : x < y;
  return nearer_to_zero != negative;
}

}  // namespace chorus::tmpl
