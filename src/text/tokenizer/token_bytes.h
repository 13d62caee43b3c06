// The bytes that one token adds to a text; a token may hold only a part of a character.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace chorus {

// The bytes of the token in the middle of a text, where no decoder strips a leading space. For a special token its
// name; empty for an id without a token.
std::string tokenBytes(const Tokenizer& tokenizer, int32_t id);

}  // namespace chorus
