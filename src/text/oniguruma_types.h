// Oniguruma's types of characters, such as \p{L} and \w, for all characters that the tokenizers library knows.
#pragma once

#include <cstdint>

namespace chorus {

// Whether the character has a type of Oniguruma's UTF-8 encoding (an OnigCtype). The library comes with a newer version
// of Oniguruma than most systems have: a character that the installed version does not know has the types of an older
// character that the library treats alike (newer_characters_table.h).
bool hasOnigurumaType(uint32_t code, int type);

// Whether the installed Oniguruma itself gives the character the same types as hasOnigurumaType().
bool isKnownToOniguruma(uint32_t code);

}  // namespace chorus
