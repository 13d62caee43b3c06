// Tokens that are cut out of the text before the model sees it: special tokens and tokens added after training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "text/tokenizer/encode_work.h"
#include "text/utf8_text.h"

namespace chorus {

struct AddedToken {
  Utf8Text content;
  bool single_word = false;  // matches only if no word character is next to it
  bool lstrip = false;       // the match includes the white space before it
  bool rstrip = false;       // the match includes the white space after it
  bool normalized = true;    // is searched for in the normalized text, else in the input
  bool special = false;      // is skipped by skip_special_tokens
  Utf8Text decoded = {};     // text for the decoder: the normalized content if `normalized`
};

class AddedVocabulary {
 public:
  // A range of the text: an added token, or text (id < 0) for the rest of the pipeline.
  struct Part {
    int32_t id;
    size_t begin;
    size_t end;
  };

  // Which tokens a search finds.
  struct Search {
    bool normalized;  // those that are matched after normalization (true) or before it (false)
    bool special;     // false: special tokens are text, though no other token is found inside them
  };

  // Adds a token, whose `decoded` must be set and not empty. If a token has the same content or id, the new one
  // replaces it, but a content that was special once stays special.
  void add(AddedToken token, int32_t id);
  // Makes the added tokens ready for split(). To be called once, after the last add(). Charges the meter and throws
  // what it throws.
  void prepareSearch(WorkMeter& meter);

  // Cuts text at the added tokens and passes the parts to sink in order. Charges the search to work.
  void split(Utf8View text, Search search, EncodeWork& work, FunctionRef<void(const Part&)> sink) const;

  const AddedToken* find(int32_t id) const;
  std::optional<int32_t> tokenId(std::string_view content) const;
  bool isSpecial(std::string_view content) const { return special_.contains(content); }
  const std::map<int32_t, AddedToken>& tokens() const { return by_id_; }
  size_t memoryBytes() const;

 private:
  // Byte trie that finds the longest token at a position. The children of a node are a linked list.
  class Trie {
   public:
    // Charges the meter for the nodes that it visits.
    void insert(std::string_view content, int32_t id, WorkMeter& meter);
    // Returns the length of the longest token at the start of text and sets id; returns 0 if there is none. Adds the
    // number of visited nodes to steps.
    size_t longest(std::string_view text, int32_t& id, uint64_t& steps) const;
    bool empty() const { return nodes_.size() == 1; }
    bool begins(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }
    size_t memoryBytes() const { return nodes_.capacity() * sizeof(Node); }

   private:
    struct Node {
      int32_t id = -1;
      uint32_t child = 0, sibling = 0;  // 0: none (the root is never a child)
      char byte = 0;
    };
    uint32_t childOf(uint32_t node, char byte, uint64_t& steps) const;

    std::vector<Node> nodes_{Node()};
    uint32_t first_[256] = {};  // the root's children
  };

  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t, std::less<>> by_content_;
  std::map<std::string, int32_t, std::less<>> special_;
  Trie plain_, normalized_;
};

}  // namespace chorus
