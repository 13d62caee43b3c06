// Converts the vocabulary files of older model directories to the tokenizer.json that transformers makes of them.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// config in both functions: tokenizer_config.json, an object. Its "tokenizer_class" says what the files mean; special
// tokens that it lacks get the class's names, which are added to it. A class that these files don't suffice for is
// refused with kUnsupported. Throws Error that names source and the field or line.

// vocab: the document of a vocab.json, {token: id}. merges: the text of a merges.txt. Classes: GPT-2 (default),
// CodeGen, Qwen2, RoBERTa and the classes that equal it, DeBERTa. Used from config: "add_prefix_space", and
// "add_bos_token" and "add_eos_token" for classes that add no tokens of their own.
Json importVocabAndMerges(const Json& vocab, std::string_view merges, Json& config, const std::string& source);

// text: a vocab.txt, one token on each line. Classes: BERT (default) and those that equal it. Used from config:
// "do_lower_case" (default true), "strip_accents", "tokenize_chinese_chars" (default true).
Json importVocabText(std::string_view text, Json& config, const std::string& source);

}  // namespace chorus
