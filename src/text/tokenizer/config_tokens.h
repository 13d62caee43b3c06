// The special tokens that a tokenizer_config.json names, for tokenizers that are built from other files than
// tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace chorus {

// The text of a token in a config: a string, or an object with "content". Nullopt for anything else.
std::optional<std::string> tokenContent(const Json& value);

// The text of the token that config names `key` ("bos_token", ...), or else `fallback`, which is then entered into
// config. Nullopt if config says null.
std::optional<std::string> namedToken(Json& config, const char* key, const std::string& fallback);

// A post-processor that puts tokens before and after a text. Each item of `before` and `after` is a token's text, and
// `vocab` (token to id) must have it.
Json templateProcessing(const std::vector<std::string>& before, const std::vector<std::string>& after,
                        const Json& vocab);

}  // namespace chorus
