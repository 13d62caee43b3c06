// The split patterns of well-known tokenizers, by hand: the same matches as the regular expression, many times faster.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace chorus {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// All matches in valid UTF-8, in order; together they cover the text.
using KnownSplit = std::vector<TextRange> (*)(std::string_view text);
// The splitter equal to pattern, or null when the pattern is not a known one.
KnownSplit findKnownSplit(std::string_view pattern);

}  // namespace chorus
