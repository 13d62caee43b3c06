// Tokens that are cut out of the text before the model sees it: special tokens and tokens added after training.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/normalizer.h"

namespace chorus {

struct AddedToken {
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = true;    // is looked for in normalized text
  bool special = false;      // is left out by skip_special_tokens
  std::string decoded = {};  // what the decoder is given: normalized content for a normalized token
};

class AddedVocabulary {
 public:
  // A stretch of the text: an added token, or text (id < 0) for the rest of the pipeline.
  struct Part {
    int32_t id;
    size_t begin;
    size_t end;
  };

  // Later tokens with the same content or id replace earlier ones. normalizer may be null.
  void add(AddedToken token, int32_t id, const Normalizer* normalizer);

  // Cuts text at the tokens that are looked for before (normalized false) or after normalization.
  std::vector<Part> split(std::string_view text, bool normalized) const;

  const AddedToken* find(int32_t id) const;
  std::optional<int32_t> tokenId(const std::string& content) const;
  bool isSpecial(std::string_view content) const { return special_.contains(content); }
  const std::map<int32_t, AddedToken>& tokens() const { return by_id_; }

 private:
  // Finds the longest token at a position: nodes of a byte trie, children by (node, byte).
  struct Trie {
    std::unordered_map<uint64_t, uint32_t> children;
    std::vector<int32_t> ids{-1};
    void insert(std::string_view content, int32_t id);
    // Length of the longest token at the start of text, 0 for none.
    size_t longest(std::string_view text, int32_t& id) const;
  };

  std::map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> by_content_;
  std::map<std::string, int32_t, std::less<>> special_;
  Trie plain_, normalized_;
};

}  // namespace chorus
