// SentencePiece's precompiled normalization: a map from characters to texts, as a double-array trie.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "text/tokenizer/normalizer.h"

namespace chorus {

// charsmap: base64 in a string, as tokenizer.json has it, or the bytes themselves (a JSON binary). The bytes are the
// trie's size in bytes (32 bits, little-endian), the trie, and the texts, each ended by a zero. Throws Error, also for
// a value of the trie that lies inside a character of the texts.
std::unique_ptr<const NormalizerStage> makePrecompiledNormalizer(const Json& charsmap, const std::string& source);

}  // namespace chorus
