#include "text/tokenizer/token_bytes.h"

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder.h"
#include "text/unicode.h"

namespace chorus {

std::string tokenBytes(const Tokenizer& tokenizer, int32_t id) {
  const Utf8Text* token = tokenizer.decoderText(id);
  if (token == nullptr || tokenizer.isSpecial(id)) return tokenizer.tokenText(id);
  // A decoder may strip the start of a text, so another token is decoded first.
  Utf8Text before;
  before.append('a');
  DecodeStream stream(tokenizer.decoder());
  std::string text = stream.feed(before).take();
  text += stream.feed(*token).bytes();
  text += stream.flush().bytes();
  if (text.starts_with(before.bytes())) text.erase(0, before.size());
  if (text.find(kReplacementCharacter) == std::string::npos) return text;
  std::string bytes;
  if (const auto byte = byteOfFallbackToken(token->bytes()))
    bytes.push_back(static_cast<char>(*byte));
  else
    appendByteLevelToken(bytes, *token);
  return bytes;
}

}  // namespace chorus
