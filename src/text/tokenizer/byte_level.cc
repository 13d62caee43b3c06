#include "text/tokenizer/byte_level.h"

#include <array>

namespace chorus {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;  // 256 + the 68 bytes that have no printable character of their own

bool standsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<Utf8Text, 256> character;
  std::array<int16_t, kAlphabetEnd> byte{};
  Alphabet() {
    byte.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t code = standsForItself(b) ? b : next++;
      character[b].append(code);
      byte[code] = static_cast<int16_t>(b);
    }
  }
};

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}
}  // namespace

void appendByteLevel(std::string_view bytes, ScratchText& out) { out.appendMapped(bytes, alphabet().character); }

Utf8Text byteLevelText(std::string_view bytes) {
  Utf8Text text;
  for (const char byte : bytes) text.append(alphabet().character[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<uint8_t> byteOfCharacter(uint32_t code) {
  if (code >= kAlphabetEnd || alphabet().byte[code] < 0) return std::nullopt;
  return static_cast<uint8_t>(alphabet().byte[code]);
}

std::optional<uint8_t> byteOfFallbackToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hexDigit(token[3]), low = hexDigit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

void appendByteLevelToken(std::string& bytes, Utf8View token) {
  const size_t before = bytes.size();
  for (size_t i = 0; i < token.size();) {
    const auto character = token.characterAt(i);
    const auto byte = byteOfCharacter(character.code);
    if (!byte) {
      bytes.resize(before);
      bytes += token.bytes();
      return;
    }
    bytes.push_back(static_cast<char>(*byte));
    i += character.length;
  }
}

}  // namespace chorus
