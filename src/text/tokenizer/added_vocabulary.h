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
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = true;    // is looked for in normalized text
  bool special = false;      // is left out by skip_special_tokens
  Utf8Text decoded = {};     // what the decoder is given: normalized content for a normalized token
};

class AddedVocabulary {
 public:
  // A stretch of the text: an added token, or text (id < 0) for the rest of the pipeline.
  struct Part {
    int32_t id;
    size_t begin;
    size_t end;
  };

  // Later tokens with the same content or id replace earlier ones. token.decoded is set and not empty.
  void add(AddedToken token, int32_t id);

  // Cuts text at the tokens that are looked for before (normalized false) or after normalization, and gives the parts
  // in their order. The search is charged.
  void split(Utf8View text, bool normalized, EncodeWork& work, FunctionRef<void(const Part&)> sink) const;

  const AddedToken* find(int32_t id) const;
  std::optional<int32_t> tokenId(std::string_view content) const;
  bool isSpecial(std::string_view content) const { return special_.contains(content); }
  const std::map<int32_t, AddedToken>& tokens() const { return by_id_; }
  size_t memoryBytes() const;

 private:
  // Finds the longest token at a position: nodes of a byte trie, the children of each as a list.
  class Trie {
   public:
    void insert(std::string_view content, int32_t id);
    // Length of the longest token at the start of text, 0 for none. steps is raised by the nodes visited.
    size_t longest(std::string_view text, int32_t& id, uint64_t& steps) const;
    bool empty() const { return nodes_.size() == 1; }
    bool begins(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }
    size_t memoryBytes() const { return nodes_.capacity() * sizeof(Node); }

   private:
    struct Node {
      int32_t id = -1;
      uint32_t child = 0, sibling = 0;  // 0: none, for the root is neither
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
