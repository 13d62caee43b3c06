// The unigram language model of sentencepiece: the split of a word whose pieces' scores add up highest.
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
  // The tokens of a word are given as soon as no piece can reach back over them.
  class Lattice;

  void sortPieces();
  void appendPiece(std::string_view piece, TokenSink& sink) const;
  // Calls found(id, length) for every piece that text begins with, shortest first. Returns the bytes compared.
  template <typename Found>
  size_t eachPrefix(std::string_view text, Found&& found) const;

  std::vector<double> scores_;   // by id
  std::vector<int32_t> sorted_;  // ids by text
  // Where the pieces of each first byte stand in sorted_.
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{};
  size_t longest_ = 4;  // bytes of the longest piece, at least those of a character
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0;
  std::optional<ByteTokens> bytes_;
};

}  // namespace chorus
