// GPT-2's alphabet: every byte as one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorus {

std::string toByteLevel(std::string_view bytes);
// The byte that a character of the alphabet stands for.
std::optional<uint8_t> byteOfCharacter(uint32_t code);
// The bytes of a token whose every character is in the alphabet; any other token as it is.
void appendByteLevelToken(std::string& bytes, std::string_view token);

}  // namespace chorus
