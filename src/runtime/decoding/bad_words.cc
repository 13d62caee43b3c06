#include "runtime/decoding/bad_words.h"

#include <span>
#include <utility>
#include <vector>

namespace chorus {

BadWordTables::BadWordTables(std::list<executor::VecTokens> words) : words_(std::move(words)) {
  std::vector<std::span<const int32_t>> beginnings;
  for (const auto& word : *words_) {
    if (word.empty()) continue;
    beginnings.push_back(std::span(word).first(word.size() - 1));
    last_tokens_.push_back(word.back());
  }
  begun_ = WordAutomaton(beginnings);
}

size_t BadWordTables::bytes() const {
  constexpr size_t kNodeBytes = sizeof(executor::VecTokens) + 4 * sizeof(void*);  // of the list, with its allocations
  size_t bytes = begun_.bytes() + last_tokens_.capacity() * sizeof(int32_t);
  for (const auto& word : *words_) bytes += kNodeBytes + word.capacity() * sizeof(int32_t);
  return bytes;
}

}  // namespace chorus
