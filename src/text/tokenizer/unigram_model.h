// The unigram language model of SentencePiece: splits a word into the pieces with the highest sum of scores.
#pragma once

#include <optional>

#include "text/tokenizer/prefix_index.h"
#include "text/tokenizer/token_model.h"

namespace chorus {

class UnigramModel final : public TokenModel {
 public:
  // Throws Error that names source and the field.
  UnigramModel(const Json& json, const std::string& source);

  void encode(Utf8View word, EncodeWork& work, TokenSink& sink) const override;
  size_t memoryBytes() const override;

 private:
  // Viterbi lattice of a word. It emits tokens as soon as every segmentation of the word passes through their end.
  class Lattice;

  void indexPieces();
  void appendPiece(std::string_view piece, TokenSink& sink) const;

  std::vector<double> scores_;  // by id
  std::optional<PrefixIndex> pieces_;
  size_t longest_ = 4;  // bytes of the longest piece, and at least of the longest character
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0;
  std::optional<ByteTokens> bytes_;
};

}  // namespace chorus
