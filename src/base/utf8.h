// UTF-8 as the standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace chorus {

// Size in bytes of the first character; 0 when the text is empty or begins with invalid bytes.
size_t utf8CharacterSize(std::string_view text);
bool isUtf8(std::string_view text);
// Like printable() (base/printable.h) with a limit of 4 KB: control characters become escapes, invalid bytes become
// question marks.
std::string oneLine(std::string_view text);

}  // namespace chorus
