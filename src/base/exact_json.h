// JSON parsing that keeps every digit of an integer, like Python's json module.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"

namespace chorus {

// Like parseOrderedJson, but an integer that fits neither int64_t nor uint64_t is not rounded to a double;
// wideIntegerDigits() returns its digits.
OrderedJson parseExactJson(std::string_view text, std::string_view source, const JsonLimits& limits = {});

// Decimal digits (with a leading minus sign if negative) of an integer beyond 64 bits that parseExactJson kept; nullopt
// for every other value. The view is valid as long as `value`.
std::optional<std::string_view> wideIntegerDigits(const OrderedJson& value);

}  // namespace chorus
