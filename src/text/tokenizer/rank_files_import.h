// Converts the files of tiktoken and of Mistral's tekken, which list the tokens of a byte pair encoding by their ranks,
// to the tokenizer.json of a kRankedModel.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace chorus {

// Whether the file begins with a line of tiktoken's format: a token in base64, a space, and its rank.
bool isTiktokenFile(std::string_view text);

// name: the file's name, which says whose patterns and special tokens apply:
//   tokenizer.model, tiktoken.model    Llama 3
//   qwen.tiktoken                      Qwen
//   r50k_base.tiktoken, cl100k_base.tiktoken, o200k_base.tiktoken    OpenAI
// config: tokenizer_config.json, an object. Its added_tokens_decoder replaces the special tokens that are known for the
// file; its "bos_token", "eos_token", "add_bos_token" (default: true for Llama 3) and "add_eos_token" are used. Names
// of special tokens that it lacks are added to it. Throws Error that names source and the line.
Json importTiktoken(std::string_view text, std::string_view name, Json& config, const std::string& source);

// tekken: the document of a tekken.json. config as above; "add_bos_token" is true by default. Throws Error that names
// source and the field.
Json importTekken(const Json& tekken, Json& config, const std::string& source);

}  // namespace chorus
