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

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  void sortPieces();
  void appendPiece(std::string_view piece, std::vector<int32_t>& ids) const;
  // Calls found(id, length) for every piece that text begins with, shortest first.
  template <typename Found>
  void eachPrefix(std::string_view text, Found&& found) const;

  std::vector<double> scores_;   // by id
  std::vector<int32_t> sorted_;  // ids by text
  // Where the pieces of each first byte stand in sorted_.
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{};
  std::optional<int32_t> unknown_;
  double unknown_score_ = 0;
  std::optional<ByteTokens> bytes_;
};

}  // namespace chorus
