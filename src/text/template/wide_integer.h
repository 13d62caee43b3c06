// Integers that do not fit int64_t: how they are parsed and compared.
#pragma once

#include <string>
#include <string_view>

#include "text/template/runtime.h"

namespace chorus::tmpl {

// Python's limit on the digits of an integer that it parses or prints.
inline constexpr size_t kMaxDigits = 4300;

// The integer with these decimal digits, which may begin with a sign and zeros; wide if it doesn't fit int64_t. Throws
// TemplateError for more than kMaxDigits digits.
Value integerOfDigits(Runtime& rt, std::string_view digits);
// The decimal digits of a float that is integral and outside of int64_t; empty for every other float.
std::string wideDigitsOf(Runtime& rt, double number);
// Whether `wide` is a wide integer and `number` a float of the same value.
bool wideEqualsFloat(Runtime& rt, const Value& wide, const Value& number);
// a < b for two numbers, at least one of which is a wide integer.
bool wideLess(Runtime& rt, const Value& a, const Value& b);

}  // namespace chorus::tmpl
