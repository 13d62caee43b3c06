#include "base/utf8.h"

#include "base/printable.h"

namespace chorus {
namespace {

constexpr size_t kMaxLineBytes = 4096;

unsigned byteAt(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }
}  // namespace

size_t utf8CharacterSize(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned first = byteAt(text, 0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  const unsigned second = byteAt(text, 1);
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (second < low || second > high) return 0;
  for (size_t i = 2; i < size; ++i) {
    if ((byteAt(text, i) & 0xc0) != 0x80) return 0;
  }
  return size;
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = utf8CharacterSize(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string oneLine(std::string_view text) { return printable(text, kMaxLineBytes); }

}  // namespace chorus
