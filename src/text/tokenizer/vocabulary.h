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
  // Longer tokens are refused.
  static constexpr size_t kMaxTokenBytes = 4096;

  // An object of tokens and ids; ids may have gaps, but not more gaps than tokens beyond the first 4,096. Throws Error
  // that names source.
  static Vocabulary fromObject(const Json& json, const std::string& source);
  // A token's place is its id; of equal texts the last is the one that a text becomes.
  static Vocabulary fromList(std::vector<Utf8Text> texts);
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<int32_t> tokenId(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }
  // Null for an id that has no token.
  const Utf8Text* tokenText(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    return id >= 0 && index < texts_.size() && present_[index] ? &texts_[index] : nullptr;
  }
  // Number of tokens (equal texts of a list are several), and one more than the largest id.
  size_t size() const { return size_; }
  int32_t idEnd() const { return static_cast<int32_t>(texts_.size()); }
  size_t memoryBytes() const;

 private:
  std::vector<Utf8Text> texts_;  // of all ids; the strings never move
  std::vector<bool> present_;
  size_t size_ = 0;
  std::unordered_map<std::string_view, int32_t, SeededHash> ids_;  // views of texts_
};

}  // namespace chorus
