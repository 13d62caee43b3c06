// JSON whose integers keep all their digits, as Python reads it.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"

namespace chorus {

// As parseOrderedJson, but an integer that fits neither int64_t nor uint64_t is not rounded to a double:
// wideIntegerDigits() has its digits.
OrderedJson parseExactJson(std::string_view text, std::string_view source, const JsonLimits& limits = {});

// The decimal digits, with a sign where it is negative, of an integer that only parseExactJson keeps; none for every
// other value. They live as long as the value.
std::optional<std::string_view> wideIntegerDigits(const OrderedJson& value);

}  // namespace chorus
