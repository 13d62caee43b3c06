// The special tokens that a tokenizer_config.json names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace chorus {

// The special tokens that every tokenizer may have, in the order in which transformers numbers those that the
// vocabulary lacks.
constexpr const char* kSpecialTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

// The id that a key of added_tokens_decoder stands for. Throws Error(kCorrupt) that names source if it is not an id.
int32_t decoderId(std::string_view key, const std::string& source);

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
