// The models of a tokenizer.json that look words up: WordPiece and WordLevel.
#pragma once

#include <optional>
#include <string>

#include "text/tokenizer/prefix_index.h"
#include "text/tokenizer/token_model.h"

namespace chorus {

// A word is one token, or the unknown token. Without an unknown token in the vocabulary, encode() throws
// Error(kInvalidArgument) for a word that is no token.
class WordLevelModel final : public TokenModel {
 public:
  // Throws Error that names source and the field.
  WordLevelModel(const Json& json, const std::string& source);

  void encode(Utf8View word, EncodeWork& work, TokenSink& sink) const override;

 private:
  std::optional<int32_t> unknown_;
};

// Cuts a word into tokens from left to right, always the longest one. Tokens after the first have a prefix. A word that
// can't be cut, or has more than max_input_chars_per_word characters, is the unknown token; without one in the
// vocabulary, encode() throws Error(kInvalidArgument).
class WordPieceModel final : public TokenModel {
 public:
  // Throws Error that names source and the field.
  WordPieceModel(const Json& json, const std::string& source);

  void encode(Utf8View word, EncodeWork& work, TokenSink& sink) const override;
  size_t memoryBytes() const override;

 private:
  bool appendPieces(std::string_view word, EncodeWork& work, std::vector<int32_t>& ids) const;

  std::optional<int32_t> unknown_;
  uint64_t most_characters_;
  PrefixIndex first_, rest_;
};

}  // namespace chorus
