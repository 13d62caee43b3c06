// Finds which of several token words a sequence ends with, token by token (Aho and Corasick).
//
// The nodes are the different beginnings of the words. The state of a sequence is the longest of them that the sequence
// ends with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chorus {

// Immutable, so that any number of sequences and threads share it; a sequence has only its state. Takes 20 bytes for
// each token of the words.
class WordAutomaton {
 public:
  using State = uint32_t;
  static constexpr State kStart = 0;  // of a sequence without tokens

  // A word without tokens is at the end of every sequence. Takes time proportional to the tokens of all words, apart
  // from sorting the words.
  explicit WordAutomaton(std::span<const std::span<const int32_t>> words = {});

  // The state of the sequence with one more token. A token costs two steps on average, each a binary search among the
  // next tokens of the words.
  State next(State state, int32_t token) const {
    for (;; state = nodes_[state].shorter) {
      const auto end = nodes_.begin() + nodes_[state + 1].children;
      const auto child = std::lower_bound(nodes_.begin() + nodes_[state].children, end, token,
                                          [](const Node& node, int32_t other) { return node.token < other; });
      if (child != end && child->token == token) return static_cast<State>(child - nodes_.begin());
      if (state == kStart) return kStart;
    }
  }
  // The state of a sequence. Reads as many of its last tokens as the longest word has.
  State after(std::span<const int32_t> tokens) const {
    State state = kStart;
    for (const int32_t token : tokens.last(std::min(tokens.size(), longest_))) state = next(state, token);
    return state;
  }

  // Memory of the tables.
  size_t bytes() const { return nodes_.capacity() * sizeof(Node) + words_.capacity() * sizeof(uint32_t); }

  bool endsAny(State state) const { return nodes_[state].ended != kNone; }
  // Calls visit(word) with the position in `words` of each word that the sequence ends with.
  template <typename Visit>
  void forEachEnd(State state, Visit visit) const {
    for (State at = nodes_[state].ended; at != kNone;) {
      for (uint32_t i = nodes_[at].words; i < nodes_[at + 1].words; ++i) visit(words_[i]);
      at = at == kStart ? kNone : nodes_[nodes_[at].shorter].ended;
    }
  }

 private:
  static constexpr State kNone = UINT32_MAX;
  struct Node {
    int32_t token = 0;    // the last one of the beginning
    State children = 0;   // the first of the nodes with one token more; they end where those of the next node begin
    State shorter = 0;    // the longest other beginning that this one ends with
    State ended = kNone;  // the first at which a word ends, among this node, its `shorter`, and so on
    uint32_t words = 0;   // the first of its words in words_; they end where those of the next node begin
  };

  std::vector<Node> nodes_;      // by length, then in order of their tokens; the last one only ends the ranges
  std::vector<uint32_t> words_;  // positions of the words, in order of their nodes
  size_t longest_ = 0;           // tokens of the longest word
};

}  // namespace chorus
