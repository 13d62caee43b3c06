#include "text/tokenizer/added_vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

uint64_t childKey(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

bool startsWithWord(std::string_view text) { return !text.empty() && isWordCharacter(decodeUtf8(text).code); }

bool endsWithWord(std::string_view text) {
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  size_t start = text.empty() ? 0 : text.size() - 1;
  while (start > 0 && continues(start)) --start;
  return startsWithWord(text.substr(start));
}
}  // namespace

void AddedVocabulary::Trie::insert(std::string_view content, int32_t id) {
  uint32_t node = 0;
  for (const char byte : content) {
    const auto [it, added] = children.emplace(childKey(node, byte), static_cast<uint32_t>(ids.size()));
    if (added) ids.push_back(-1);
    node = it->second;
  }
  // Of two tokens that normalize to the same text, the first is the one that is found.
  if (ids[node] < 0 && node != 0) ids[node] = id;
}

size_t AddedVocabulary::Trie::longest(std::string_view text, int32_t& id) const {
  uint32_t node = 0;
  size_t length = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto it = children.find(childKey(node, text[i]));
    if (it == children.end()) break;
    node = it->second;
    if (ids[node] >= 0) id = ids[node], length = i + 1;
  }
  return length;
}

void AddedVocabulary::add(AddedToken token, int32_t id, const Normalizer* normalizer) {
  if (token.special) special_.emplace(token.content, id);
  by_content_[token.content] = id;
  token.decoded = token.content;
  if (token.normalized) {
    if (normalizer != nullptr) token.decoded = normalizer->normalize(token.content);
    normalized_.insert(token.decoded, id);
  } else {
    plain_.insert(token.content, id);
  }
  by_id_[id] = std::move(token);
}

const AddedToken* AddedVocabulary::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second;
}

std::optional<int32_t> AddedVocabulary::tokenId(const std::string& content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? std::nullopt : std::optional(it->second);
}

std::vector<AddedVocabulary::Part> AddedVocabulary::split(std::string_view text, bool normalized) const {
  const Trie& trie = normalized ? normalized_ : plain_;
  std::vector<Part> parts;
  if (trie.children.empty()) {
    if (!text.empty()) parts.push_back({-1, 0, text.size()});
    return parts;
  }
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    int32_t id = -1;
    const size_t length = trie.longest(text.substr(at), id);
    if (length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = by_id_.at(id);
    if (token.single_word && (endsWithWord(text.substr(0, begin)) || startsWithWord(text.substr(end)))) continue;
    // White space that the token before has already taken stays with it.
    if (token.lstrip) begin = std::max(begin - trailingSpace(text.substr(0, begin)), done);
    if (token.rstrip) end += leadingSpace(text.substr(end));
    if (done < begin) parts.push_back({-1, done, begin});
    // Of a token that is all white space, the one before may have taken everything.
    if (begin < end) parts.push_back({id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
  return parts;
}

}  // namespace chorus
