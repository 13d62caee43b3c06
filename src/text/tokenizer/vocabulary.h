// Tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/seeded_hash.h"
#include "text/utf8_text.h"

namespace chorus {

class Vocabulary {
 public:
  // Limit on the length of a token; longer tokens are refused.
  static constexpr size_t kMaxTokenBytes = 1024;

  // Reads the member "vocab" of a model, an object that maps tokens to ids. Ids may have gaps, at most as many as there
  // are tokens plus 4,096. Throws Error that names source.
  static Vocabulary fromModel(const Json& model, const std::string& source);
  // The index of a token is its id. If texts are equal, tokenId() returns the last one.
  static Vocabulary fromList(std::vector<Utf8Text> texts);
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<int32_t> tokenId(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }
  // Returns null for an id that has no token.
  const Utf8Text* tokenText(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    return id >= 0 && index < texts_.size() && present_[index] ? &texts_[index] : nullptr;
  }
  // Number of tokens (equal texts of a list count separately), and the largest id plus one.
  size_t size() const { return size_; }
  int32_t idEnd() const { return static_cast<int32_t>(texts_.size()); }
  size_t memoryBytes() const;

 private:
  std::vector<Utf8Text> texts_;  // by id; the strings must not move, because ids_ refers to them
  std::vector<bool> present_;
  size_t size_ = 0;
  std::unordered_map<std::string_view, int32_t, SeededHash> ids_;  // views of texts_
};

}  // namespace chorus
