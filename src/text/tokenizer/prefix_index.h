// Finds all tokens that a text begins with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace chorus {

class PrefixIndex {
 public:
  // The tokens `ids` of the vocabulary, each without its first `skip` bytes. Tokens that are then empty are left out.
  // The vocabulary must outlive the index and stay in its place.
  PrefixIndex(const Vocabulary& vocabulary, std::vector<int32_t> ids, size_t skip)
      : vocabulary_(vocabulary), ids_(std::move(ids)), skip_(skip) {
    std::erase_if(ids_, [&](int32_t id) { return textOf(id).empty(); });
    std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) { return textOf(a) < textOf(b); });
    for (size_t i = 0; i < ids_.size(); ++i) {
      auto& range = by_first_byte_[static_cast<unsigned char>(textOf(ids_[i])[0])];
      if (range.second == 0) range.first = i;
      range.second = i + 1;
    }
  }

  // Calls found(id, length) for every token that text, which is not empty, begins with, shortest first. Returns the
  // number of bytes compared.
  template <typename Found>
  size_t eachPrefix(std::string_view text, Found&& found) const {
    auto [low, high] = by_first_byte_[static_cast<unsigned char>(text[0])];
    size_t length = 1;
    for (; low < high; ++length) {
      // All tokens in [low, high) begin with the first `length` bytes of text; the first token may be exactly these
      // bytes.
      if (textOf(ids_[low]).size() == length) {
        found(ids_[low], length);
        ++low;
      }
      if (length == text.size()) break;
      const auto next = static_cast<unsigned char>(text[length]);
      const auto byteOf = [&](int32_t id) { return static_cast<unsigned char>(textOf(id)[length]); };
      const auto at = [&](size_t i) { return ids_.begin() + static_cast<std::ptrdiff_t>(i); };
      const auto from =
          std::lower_bound(at(low), at(high), next, [&](int32_t id, unsigned char byte) { return byteOf(id) < byte; });
      const auto to =
          std::upper_bound(from, at(high), next, [&](unsigned char byte, int32_t id) { return byte < byteOf(id); });
      low = static_cast<size_t>(from - ids_.begin());
      high = static_cast<size_t>(to - ids_.begin());
    }
    return length;
  }

  size_t memoryBytes() const { return sizeof(*this) + ids_.capacity() * sizeof(int32_t); }

 private:
  std::string_view textOf(int32_t id) const {
    return std::string_view(vocabulary_.tokenText(id)->bytes()).substr(skip_);
  }

  const Vocabulary& vocabulary_;
  std::vector<int32_t> ids_;  // by text
  size_t skip_;
  // The range [begin, end) in ids_ of the tokens with each first byte.
  std::array<std::pair<size_t, size_t>, 256> by_first_byte_{};
};

}  // namespace chorus
