#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/utf8.h"

namespace chorus {
namespace {

struct Range {
  uint32_t first, last;
};
// The characters of the general categories Cc, Cf, Zl and Zp of Unicode 16, in ascending order.
constexpr Range kEscaped[] = {{0x0000, 0x001f},   {0x007f, 0x009f},   {0x00ad, 0x00ad},   {0x0600, 0x0605},
                              {0x061c, 0x061c},   {0x06dd, 0x06dd},   {0x070f, 0x070f},   {0x0890, 0x0891},
                              {0x08e2, 0x08e2},   {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
                              {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
                              {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
                              {0xe0000, 0xe007f}};

bool isEscaped(uint32_t codepoint) {
  const auto* const after = std::upper_bound(std::begin(kEscaped), std::end(kEscaped), codepoint,
                                             [](uint32_t c, const Range& range) { return c < range.first; });
  return after != std::begin(kEscaped) && codepoint <= std::prev(after)->last;
}

// The code point of one valid UTF-8 character.
uint32_t codepointOf(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(character[i])); };
  if (character.size() == 1) return byte(0);
  uint32_t codepoint = byte(0) & (0x7fU >> character.size());
  for (size_t i = 1; i < character.size(); ++i) codepoint = codepoint << 6 | (byte(i) & 0x3f);
  return codepoint;
}

}  // namespace

bool isPrintable(std::string_view text) {
  while (!text.empty()) {
    const size_t size = utf8CharacterSize(text);
    if (size == 0 || isEscaped(codepointOf(text.substr(0, size)))) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    if (out.size() > max_bytes) return out + "...";
    const size_t size = utf8CharacterSize(text);
    if (size == 0) {
      out += '?';
      text.remove_prefix(1);
      continue;
    }
    const uint32_t codepoint = codepointOf(text.substr(0, size));
    if (!isEscaped(codepoint)) {
      out += text.substr(0, size);
    } else if (codepoint == '\n') {
      out += "\\n";
    } else {
      out += codepoint < 0x80 ? fmt::format("\\x{:02x}", codepoint) : fmt::format("\\u{{{:x}}}", codepoint);
    }
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace chorus
