// The files of a model directory that say how it reads and writes text.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/json.h"

namespace chorus {

// The bytes of these files, read once: what is hashed, checked and parsed is the same.
struct TokenizerFileSet {
  std::string directory;                     // for error lines
  std::map<std::string, std::string> files;  // by name relative to the directory

  bool empty() const { return files.empty(); }
  bool hasTokenizer() const;
  size_t bytes() const;
  // A hash of the files' names and contents, for whoever would load equal ones once.
  std::string digest() const;
};

struct TokenizerFileLimits {
  size_t file_bytes = size_t{64} << 20;
  size_t total_bytes = size_t{256} << 20;
};

// Reads those that are there. Throws Error: a file that is larger than the limits, is not a regular file or lies behind
// a link that the directory refuses; more than 64 templates of their own.
TokenizerFileSet readTokenizerFileSet(const Directory& directory, const TokenizerFileLimits& limits = {});
// The same of a trusted directory; empty when there is none.
TokenizerFileSet readTokenizerFileSet(const std::filesystem::path& directory);

struct TokenizerFiles {
  Json tokenizer;      // tokenizer.json, or what stands for it
  Json config;         // tokenizer_config.json with what other files add to it; null when there is nothing
  std::string source;  // for errors: the file that tokenizer was read from
};

// tokenizer.json, else tokenizer.model (sentencepiece); tokenizer_config.json; of the older special_tokens_map.json and
// added_tokens.json what the config lacks; chat templates from chat_template.jinja and additional_chat_templates/
// before those of the config, and from chat_template.json when there are no others.
//
// fallback: where `files` has neither tokenizer, the files that are used for those that it lacks; null: none.
// Throws Error.
TokenizerFiles parseTokenizerFiles(const TokenizerFileSet& files, const TokenizerFileSet* fallback = nullptr);

// Both for a trusted directory.
TokenizerFiles readTokenizerFiles(const std::filesystem::path& dir);

}  // namespace chorus
