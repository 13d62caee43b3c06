// Tokens and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace chorus {

class Vocabulary {
 public:
  // An object of tokens and ids; ids may have gaps. Throws Error that names source.
  static Vocabulary fromObject(const Json& json, const std::string& source);
  // A token's place is its id; of equal texts the last is the one that a text becomes.
  static Vocabulary fromList(std::vector<std::string> texts);
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  std::optional<int32_t> tokenId(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }
  // Null for an id that has no token.
  const std::string* tokenText(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    return id >= 0 && index < texts_.size() && present_[index] ? &texts_[index] : nullptr;
  }
  // Number of tokens (equal texts of a list are several), and one more than the largest id.
  size_t size() const { return size_; }
  int32_t idEnd() const { return static_cast<int32_t>(texts_.size()); }

 private:
  std::vector<std::string> texts_;  // of all ids; the strings never move
  std::vector<bool> present_;
  size_t size_ = 0;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of texts_
};

}  // namespace chorus
