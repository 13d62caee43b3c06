// The "model" of a tokenizer.json: encodes words as tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/encode_limits.h"
#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/vocabulary.h"

namespace chorus {

// Collects the ids of one text and checks the limits.
class TokenSink {
 public:
  TokenSink(std::vector<int32_t>& ids, const EncodeLimits& limits) : ids_(ids), limits_(limits) {}

  void push(int32_t id) {
    ids_.push_back(id);
    check();
  }
  // Makes room for `more` ids: growth by doubling could hold twice the memory that a long word needs.
  void reserve(size_t more) {
    const size_t needed = ids_.size() + more;
    if (needed > ids_.capacity()) ids_.reserve(std::max(needed, ids_.capacity() + ids_.capacity() / 2));
  }
  // Call after appending ids to all(). Throws TooManyTokens.
  void check() const {
    if (ids_.size() > limits_.max_tokens) throw TooManyTokens(limits_.max_tokens);
  }
  std::vector<int32_t>& all() { return ids_; }

 private:
  std::vector<int32_t>& ids_;
  const EncodeLimits& limits_;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the tokens of one word. Charges work and memory. Thread-safe.
  virtual void encode(Utf8View word, EncodeWork& work, TokenSink& sink) const = 0;
  virtual size_t memoryBytes() const { return vocabulary_.memoryBytes(); }

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  std::optional<int32_t> tokenId(std::string_view token) const { return vocabulary_.tokenId(token); }

  Vocabulary vocabulary_;
};

// The type of a model that only this program writes: a "vocab" whose tokens are in the byte-level alphabet. Any two
// tokens merge that together are a token; the one with the lowest id is merged first. This is what tiktoken does.
inline constexpr const char* kRankedModel = "BytePairRanks";

// The "type" of a model or, if that is absent as in old files, the type that its members show.
std::string tokenModelType(const Json& json, const std::string& source);

// Throws Error that names source and field; kUnsupported for a model of an unknown type. Charges the meter for work
// that is more than a pass over the vocabulary, and throws what the meter throws.
std::unique_ptr<const TokenModel> makeTokenModel(const Json& json, const std::string& source, WorkMeter& meter);

// Ids of the tokens <0x00> to <0xFF>; -1 if the vocabulary lacks the token.
struct ByteTokens {
  explicit ByteTokens(const Vocabulary& vocabulary);
  // Appends the tokens of text's bytes. If one is missing, returns false and appends nothing.
  bool append(std::string_view text, std::vector<int32_t>& ids) const;

  int32_t ids[256];
};

}  // namespace chorus
