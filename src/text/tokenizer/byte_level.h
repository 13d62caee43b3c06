// GPT-2's byte-level alphabet, which represents every byte by one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/tokenizer/encode_work.h"

namespace chorus {

void appendByteLevel(std::string_view bytes, ScratchText& out);
Utf8Text byteLevelText(std::string_view bytes);
// The byte that a character of the alphabet represents; nullopt for other characters.
std::optional<uint8_t> byteOfCharacter(uint32_t code);
// The byte of a byte fallback token "<0xNN>"; nullopt for other tokens.
std::optional<uint8_t> byteOfFallbackToken(std::string_view token);
// Appends the bytes that the token's characters represent; if one of them is not in the alphabet, appends the token
// unchanged.
void appendByteLevelToken(std::string& bytes, Utf8View token);

}  // namespace chorus
