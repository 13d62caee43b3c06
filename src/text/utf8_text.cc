#include "text/utf8_text.h"

#include <cstring>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

// Number of ASCII bytes at the front; tests eight bytes at a time.
size_t asciiPrefix(std::string_view bytes) {
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t eight;
    std::memcpy(&eight, bytes.data() + at, 8);
    if ((eight & 0x8080808080808080u) != 0) break;
  }
  while (at < bytes.size() && static_cast<unsigned char>(bytes[at]) < 0x80) ++at;
  return at;
}

bool isValid(std::string_view bytes) {
  for (size_t at = 0;;) {
    at += asciiPrefix(bytes.substr(at));
    if (at == bytes.size()) return true;
    const Utf8Step step = decodeUtf8(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    at += static_cast<size_t>(step.length);
  }
}
}  // namespace

std::optional<Utf8View> Utf8View::check(std::string_view bytes) {
  return isValid(bytes) ? std::optional(Utf8View(bytes)) : std::nullopt;
}

void Utf8View::failBoundary(size_t begin, size_t end, size_t size) {
  fail(ErrorCode::kInternal, "the bytes {} to {} of a text of {} bytes do not begin and end at characters", begin, end,
       size);
}

Utf8Text Utf8Text::replacingInvalid(std::string_view bytes) {
  Utf8Text text;
  text.bytes_ = toValidUtf8(bytes);
  return text;
}

std::optional<Utf8Text> Utf8Text::check(std::string bytes) {
  if (!isValid(bytes)) return std::nullopt;
  Utf8Text text;
  text.bytes_ = std::move(bytes);
  return text;
}

void Utf8Text::append(uint32_t code) { appendUtf8(bytes_, isCharacterCode(code) ? code : 0xFFFD); }

}  // namespace chorus
