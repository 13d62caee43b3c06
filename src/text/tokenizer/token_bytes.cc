#include "text/tokenizer/token_bytes.h"

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder.h"
#include "text/unicode.h"

namespace chorus {
namespace {

int hexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::string tokenBytes(const Tokenizer& tokenizer, int32_t id) {
  const std::string* known = tokenizer.decoderText(id);
  if (known == nullptr || tokenizer.isSpecial(id)) return tokenizer.tokenText(id);
  const std::string& token = *known;
  // A decoder may strip what stands first in a text, so something else stands there.
  constexpr std::string_view kBefore = "a";
  DecodeStream stream(tokenizer.decoder());
  std::string text = stream.feed(kBefore);
  text += stream.feed(token);
  text += stream.flush();
  if (text.starts_with(kBefore)) text.erase(0, kBefore.size());
  if (text.find(kReplacementCharacter) == std::string::npos) return text;
  std::string bytes;
  if (token.size() == 6 && token.starts_with("<0x") && hexDigit(token[3]) >= 0 && hexDigit(token[4]) >= 0) {
    bytes.push_back(static_cast<char>(hexDigit(token[3]) * 16 + hexDigit(token[4])));
  } else {
    appendByteLevelToken(bytes, token);
  }
  return bytes;
}

}  // namespace chorus
