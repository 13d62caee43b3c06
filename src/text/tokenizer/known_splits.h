// Hand-written matchers for the split patterns of well-known tokenizers: the same matches as the regular expression,
// many times faster.
#pragma once

#include <string_view>

#include "text/tokenizer/regex.h"

namespace chorus {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns the end of the match that begins at `at`, a character boundary before the end of the text. The matches
// together cover the text.
using KnownSplit = size_t (*)(Utf8View text, size_t at);
// Returns the matcher for pattern, or null if the pattern is not a known one.
KnownSplit findKnownSplit(std::string_view pattern);
// Same contract as Regex::forEachMatch.
void forEachKnownMatch(KnownSplit split, Utf8View text, EncodeWork& work,
                       FunctionRef<bool(size_t begin, size_t end)> found);

}  // namespace chorus
