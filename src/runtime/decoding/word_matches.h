// Finds which of several token words a sequence ends with, token by token (Knuth, Morris and Pratt). A token costs a
// few comparisons per word, however long the words are and however much they repeat themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

class WordMatches {
 public:
  void add(std::span<const int32_t> word);  // not empty; only before the first append()
  void append(int32_t token) {
    for (Word& word : words_) advance(word, token);
  }
  // Forgets all appended tokens.
  void restart() noexcept {
    for (Word& word : words_) word.matched = 0;
  }

  size_t size() const { return words_.size(); }
  bool ends(size_t word) const { return words_[word].matched == words_[word].tokens.size(); }
  bool endsAny() const {
    for (size_t i = 0; i < size(); ++i) {
      if (ends(i)) return true;
    }
    return false;
  }

 private:
  struct Word {
    std::vector<int32_t> tokens;
    // [matched]: length of the longest proper prefix of the first `matched` tokens that is also a suffix of them.
    std::vector<uint32_t> border;
    size_t matched = 0;
  };
  static void advance(Word& word, int32_t token) {
    size_t& matched = word.matched;
    if (matched == word.tokens.size()) matched = word.border[matched];
    while (matched > 0 && word.tokens[matched] != token) matched = word.border[matched];
    if (word.tokens[matched] == token) ++matched;
  }

  std::vector<Word> words_;
};

inline void WordMatches::add(std::span<const int32_t> tokens) {
  Word word{{tokens.begin(), tokens.end()}, std::vector<uint32_t>(tokens.size() + 1, 0), 0};
  for (size_t i = 1; i < tokens.size(); ++i) {
    uint32_t border = word.border[i];
    while (border > 0 && tokens[border] != tokens[i]) border = word.border[border];
    word.border[i + 1] = tokens[border] == tokens[i] ? border + 1 : 0;
  }
  words_.push_back(std::move(word));
}

}  // namespace chorus
