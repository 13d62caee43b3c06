// The files of a model directory that say how it reads and writes text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"

namespace chorus {

struct TokenizerFiles {
  Json tokenizer;      // tokenizer.json, or what stands for it
  Json config;         // tokenizer_config.json with what other files add to it; null when there is nothing
  std::string source;  // for errors: the file that tokenizer was read from
};

// tokenizer.json, else tokenizer.model (sentencepiece); tokenizer_config.json; of the older special_tokens_map.json and
// added_tokens.json what the config lacks; chat templates from chat_template.jinja and additional_chat_templates/
// before those of the config, and from chat_template.json when there are no others.
//
// fallback: where dir has neither tokenizer, the directory whose files are used for those that dir lacks; empty: none.
// Throws Error.
TokenizerFiles readTokenizerFiles(const std::filesystem::path& dir, const std::filesystem::path& fallback = {});

// Whether a directory holds any of these files.
bool hasTokenizerFiles(const std::filesystem::path& dir);
// The same with a hash of the files' names and contents, for whoever would load equal ones once. Empty without files.
std::string tokenizerFilesDigest(const std::filesystem::path& dir);

}  // namespace chorus
