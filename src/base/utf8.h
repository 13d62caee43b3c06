// UTF-8 as the standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace chorus {

// Bytes of the character at the front; 0 when there is none, or an invalid one.
size_t utf8CharacterSize(std::string_view text);
bool isUtf8(std::string_view text);
// One printable line of at most 4 KB: control characters become their escapes, invalid bytes question marks.
std::string oneLine(std::string_view text);

}  // namespace chorus
