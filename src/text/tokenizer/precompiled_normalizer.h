// SentencePiece's precompiled normalization: a map from characters to texts, as a double-array trie.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "text/tokenizer/normalizer.h"

namespace chorus {

// charsmap: a base64 string, as in tokenizer.json, or the bytes themselves (a JSON binary). Layout of the bytes: size
// of the trie in bytes (32 bits, little-endian), the trie, and the texts, each terminated by a zero byte. Throws Error,
// also if a value of the trie points inside a character of the texts.
std::unique_ptr<const NormalizerStage> makePrecompiledNormalizer(const Json& charsmap, const std::string& source);

}  // namespace chorus
