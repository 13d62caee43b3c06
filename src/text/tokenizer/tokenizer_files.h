// The tokenizer and chat template files of a model directory.
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
#include "base/work_meter.h"

namespace chorus {

// The bytes of these files, read once, so that the bytes that are hashed, checked and parsed are the same.
struct TokenizerFileSet {
  std::string directory;                     // for error lines
  std::map<std::string, std::string> files;  // by name relative to the directory

  bool empty() const { return files.empty(); }
  bool hasTokenizer() const;
  size_t bytes() const;
  // A hash of the files' names and contents, so that equal sets need to be loaded only once.
  std::string digest() const;
};

struct TokenizerFileLimits {
  size_t file_bytes = size_t{64} << 20;
  size_t total_bytes = size_t{256} << 20;
};

// Whether the directory of a trusted model has a file with a tokenizer, of any of the kinds below.
bool hasTokenizer(const std::filesystem::path& directory);
// Whether the directory may have any of the files; none is read.
bool hasTokenizerFiles(const Directory& directory);
// Reads the files that exist, but of those with a tokenizer only the first one (see parseTokenizerFiles). Throws Error
// if a file is larger than the limits, is not a regular file or lies behind a link that the directory refuses, or if
// there are more than 64 additional templates.
TokenizerFileSet readTokenizerFileSet(const Directory& directory, const TokenizerFileLimits& limits = {});
// Reads the files of a trusted directory; empty if the directory does not exist.
TokenizerFileSet readTokenizerFileSet(const std::filesystem::path& directory);

struct TokenizerFiles {
  Json tokenizer;  // tokenizer.json with the tokens of other files, or its equivalent for a tokenizer in other files
  Json config;     // object: tokenizer_config.json with what other files add to it
  std::string source;  // for errors: the file that tokenizer was read from
};

// Sources, in order of precedence:
// - tokenizer: tokenizer.json, tekken.json (Mistral), tokenizer.model (SentencePiece, or tiktoken's format as Llama 3
//   has it), tiktoken.model, qwen.tiktoken, r50k_base.tiktoken, cl100k_base.tiktoken, o200k_base.tiktoken, vocab.json
//   with merges.txt, vocab.txt (WordPiece);
// - config: tokenizer_config.json. Unless it has added_tokens_decoder, values of special_tokens_map.json replace its
// own,
//   and added_tokens.json adds tokens. Beside a tokenizer.json, the tokens of all three are entered into `tokenizer`
//   (configured_tokens.h);
// - chat templates: chat_template.jinja and additional_chat_templates/, then the config, then chat_template.json.
//
// fallback: if `files` has no tokenizer, files that it lacks are taken from fallback; null: none. Throws Error. Charges
// the meter for work that is more than a few passes over the files, and throws what the meter throws.
TokenizerFiles parseTokenizerFiles(const TokenizerFileSet& files, const TokenizerFileSet* fallback, WorkMeter& meter);
// Overload without a limit, for trusted files only.
TokenizerFiles parseTokenizerFiles(const TokenizerFileSet& files, const TokenizerFileSet* fallback = nullptr);

// Reads and parses the files of a trusted directory.
TokenizerFiles readTokenizerFiles(const std::filesystem::path& dir);

}  // namespace chorus
