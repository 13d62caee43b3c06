// Integers that do not fit int64_t: how they are read and compared.
#pragma once

#include <string>
#include <string_view>

#include "text/template/runtime.h"

namespace chorus::tmpl {

// Python reads and prints integers of at most so many digits.
inline constexpr size_t kMaxDigits = 4300;

// The integer of decimal digits, which may begin with a sign and with zeros: a wide one where int64_t can't hold it.
// Throws TemplateError on more than kMaxDigits digits.
Value integerOfDigits(Runtime& rt, std::string_view digits);
// The decimal digits of a float that is integral and beyond int64_t; empty for every other float.
std::string wideDigitsOf(double number);
// Whether the first is a wide integer and the second a float of the same value.
bool wideEqualsFloat(const Value& wide, const Value& number);
// a < b of two numbers, at least one of which is a wide integer.
bool wideLess(const Value& a, const Value& b);

}  // namespace chorus::tmpl
