// Strings of a JSON document, checked to be UTF-8, because a document built by a program may hold other bytes.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "text/utf8_text.h"

namespace chorus {

// Throws Error(kCorrupt), naming source and key, if the bytes are not UTF-8.
inline Utf8Text checkedText(std::string bytes, std::string_view key, std::string_view source) {
  auto text = Utf8Text::check(std::move(bytes));
  if (!text) fail(ErrorCode::kCorrupt, "{}: '{}' is not UTF-8", source, key);
  return std::move(*text);
}

// jsonGet of a string, with the same check.
inline Utf8Text jsonGetText(const Json& object, const std::string& key, std::string_view source) {
  return checkedText(jsonGet<std::string>(object, key, source), key, source);
}

}  // namespace chorus
