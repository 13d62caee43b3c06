// The unigram language model of SentencePiece: splits a word into the pieces with the highest sum of scores.
#pragma once

#include <array>
#include <optional>
#include <utility>

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

  void sortPieces();
  void appendPiece(std::string_view piece, TokenSink& sink) const;
  // Calls found(id, length) for every piece that text begins with, shortest first. Returns the bytes compared.
  template <typename Found>
  size_t eachPrefix(std::string_view text, Found&& found) const;

  std::vector<double> scores_;   // by id
  std::vector<int32_t> sorted_;  // ids by text
  // The range [begin, end) in sorted_ of the pieces with each first byte.
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{};
  size_t longest_ = 4;  // bytes of the longest piece, and at least of the longest character
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0;
  std::optional<ByteTokens> bytes_;
};

}  // namespace chorus
