// What one token adds to a text, as bytes: a token may hold a part of a character only.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer/tokenizer.h"

namespace chorus {

// In the middle of a text, where no decoder strips a leading space. Special tokens as their names; empty for an id
// without a token.
std::string tokenBytes(const Tokenizer& tokenizer, int32_t id);

}  // namespace chorus
