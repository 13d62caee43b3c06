// Frees the memory of a string.
#pragma once

#include <string>

namespace chorus {

// Empties the text and frees its memory. Assigning an empty string would keep the memory: a string that needs none is
// copied into that of the other.
inline void freeText(std::string& text) noexcept { std::string().swap(text); }

}  // namespace chorus
