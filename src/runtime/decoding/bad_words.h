// The bad words of executor::Request, with the tables in which their beginnings are found.
#pragma once

#include <list>
#include <optional>

#include "chorus/types.h"
#include "runtime/decoding/word_automaton.h"

namespace chorus {

// Immutable, so that all requests and sequences with these words share it.
class BadWordTables {
 public:
  explicit BadWordTables(std::list<executor::VecTokens> words);

  const std::optional<std::list<executor::VecTokens>>& words() const { return words_; }  // never nullopt

  // Memory of the words and tables.
  size_t bytes() const;

  // The automaton of the words without their last tokens; an empty word is left out. A sequence begins the words whose
  // beginnings it ends with.
  const WordAutomaton& begun() const { return begun_; }
  // Whether no word can be begun.
  bool empty() const { return last_tokens_.empty(); }
  // Calls ban(token) for each token that would complete a word. begun: the state of begun() for all known tokens.
  template <typename Ban>
  void forEachBanned(WordAutomaton::State begun, Ban ban) const {
    begun_.forEachEnd(begun, [&](uint32_t word) { ban(last_tokens_[word]); });
  }

 private:
  std::optional<std::list<executor::VecTokens>> words_;  // as Request::getBadWords() returns them
  executor::VecTokens last_tokens_;                      // of each word of begun_
  WordAutomaton begun_;
};

}  // namespace chorus
