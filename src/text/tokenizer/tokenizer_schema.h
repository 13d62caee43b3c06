// The schema of tokenizer.json: the fields of each of its components, and their types. A file that Hugging Face's
// tokenizers refuse as incomplete or mistyped is refused here too, whether or not a field affects ids and texts.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// Parses and checks the document. Throws Error that names source and field in one line. The meaning of the fields, and
// components whose types are not in the tables, are left to Tokenizer::fromJson.
Json parseTokenizerJson(std::string_view text, const std::string& source);

}  // namespace chorus
