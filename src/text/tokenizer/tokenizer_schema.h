// The document tokenizer.json and the shape it must have.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// The document of a tokenizer.json's text, for Tokenizer::fromJson. Beside what the components here ask for it is held
// to what Hugging Face's tokenizers (the serde structs of its 0.22) demand for offsets, pairs, truncation and padding:
// fields that must be there, their types, no others at the top, no key twice. So a file is refused by both readers or
// means the same to both. Throws Error that names the field.
Json parseTokenizerJson(std::string_view text, const std::string& source);

}  // namespace chorus
