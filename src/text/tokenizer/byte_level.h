// GPT-2's alphabet: every byte as one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer/encode_work.h"

namespace chorus {

void appendByteLevel(std::string_view bytes, ScratchText& out);
// The byte that a character of the alphabet stands for.
std::optional<uint8_t> byteOfCharacter(uint32_t code);
// The byte of a token "<0xNN>", as models with byte fallback name them.
std::optional<uint8_t> byteOfFallbackToken(std::string_view token);
// The bytes of a token whose every character is in the alphabet; any other token as it is.
void appendByteLevelToken(std::string& bytes, Utf8View token);

}  // namespace chorus
