// The "model" of a tokenizer.json: words to tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/vocabulary.h"

namespace chorus {

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the tokens of one word of valid UTF-8. Thread-safe.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  std::optional<int32_t> tokenId(std::string_view token) const { return vocabulary_.tokenId(token); }

  Vocabulary vocabulary_;
};

// By the json's "type" (absent: by its members, as old files have it). Throws Error that names source and the field;
// kUnsupported for a model of another type.
std::unique_ptr<const TokenModel> makeTokenModel(const Json& json, const std::string& source);

// Ids of the tokens <0x00> to <0xFF>, -1 where the vocabulary has none.
struct ByteTokens {
  explicit ByteTokens(const Vocabulary& vocabulary);
  // Appends the tokens of text's bytes; false, and nothing appended, when one is missing.
  bool append(std::string_view text, std::vector<int32_t>& ids) const;

  int32_t ids[256];
};

}  // namespace chorus
