#include "text/tokenizer/token_bytes.h"

#include <initializer_list>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder.h"
#include "text/unicode.h"

namespace chorus {
namespace {

std::string decoded(const Tokenizer& tokenizer, std::initializer_list<Utf8View> tokens) {
  DecodeStream stream(tokenizer.decoder());
  std::string text;
  for (const Utf8View token : tokens) text += stream.feed(token).bytes();
  return text += stream.flush().bytes();
}
}  // namespace

std::string tokenBytes(const Tokenizer& tokenizer, int32_t id) {
  const Utf8Text* token = tokenizer.decoderText(id);
  if (token == nullptr || tokenizer.isSpecial(id)) return tokenizer.tokenText(id);
  // A decoder may treat the first and the last token of a text differently, or drop a token that equals its neighbour.
  // So the token is decoded between two others, whose texts are then removed.
  const auto other = [&](char first, char second) {
    Utf8Text letter;
    letter.append(static_cast<uint32_t>(token->bytes() == std::string(1, first) ? second : first));
    return letter;
  };
  const Utf8Text before = other('a', 'c'), after = other('b', 'd');
  std::string text = decoded(tokenizer, {before, *token, after});
  const std::string without = decoded(tokenizer, {before, after});
  if (text.starts_with(before.bytes()) && without.starts_with(before.bytes())) {
    text.erase(0, before.size());
    const std::string_view last = std::string_view(without).substr(before.size());
    if (text.ends_with(last)) text.erase(text.size() - last.size());
  }
  if (text.find(kReplacementCharacter) == std::string::npos) return text;
  std::string bytes;
  if (const auto byte = byteOfFallbackToken(token->bytes()))
    bytes.push_back(static_cast<char>(*byte));
  else
    appendByteLevelToken(bytes, *token);
  return bytes;
}

}  // namespace chorus
