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

}  // namespace chorus
