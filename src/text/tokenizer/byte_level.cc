#include "text/tokenizer/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace chorus {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;  // 256 + the 68 bytes that have no printable character of their own

bool standsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> character;
  std::array<int16_t, kAlphabetEnd> byte{};
  Alphabet() {
    byte.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t code = standsForItself(b) ? b : next++;
      appendUtf8(character[b], code);
      byte[code] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}
}  // namespace

std::string toByteLevel(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4 + 2);
  for (const char c : bytes) out += alphabet().character[static_cast<unsigned char>(c)];
  return out;
}

std::optional<uint8_t> byteOfCharacter(uint32_t code) {
  if (code >= kAlphabetEnd || alphabet().byte[code] < 0) return std::nullopt;
  return static_cast<uint8_t>(alphabet().byte[code]);
}

void appendByteLevelToken(std::string& bytes, std::string_view token) {
  const size_t before = bytes.size();
  for (size_t i = 0; i < token.size();) {
    const Utf8Step step = decodeUtf8(token.substr(i));
    const auto byte = byteOfCharacter(step.code);
    if (!byte) {
      bytes.resize(before);
      bytes += token;
      return;
    }
    bytes.push_back(static_cast<char>(*byte));
    i += static_cast<size_t>(step.length);
  }
}

}  // namespace chorus
