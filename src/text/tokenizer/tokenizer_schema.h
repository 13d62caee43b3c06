// The shape of a tokenizer.json: the fields that each of its parts has, and their kinds. A file that Hugging Face's
// tokenizers refuses as incomplete or mistyped is refused here too, whether or not a field matters to ids and texts.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// The document, checked. Throws Error that names source and field in one line. What the fields mean, and types of parts
// that are not in the tables, is left to Tokenizer::fromJson.
Json parseTokenizerJson(std::string_view text, const std::string& source);

}  // namespace chorus
