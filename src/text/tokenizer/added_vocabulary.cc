#include "text/tokenizer/added_vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/library_characters.h"
#include "text/unicode.h"

namespace chorus {
namespace {

bool wordAt(Utf8View text, size_t at) { return at < text.size() && library::isWord(text.characterAt(at).code); }

bool wordBefore(Utf8View text, size_t at) { return at > 0 && wordAt(text, text.before(at)); }

// Start of the white space that ends at `at`, but not before `limit`.
size_t spaceBegin(Utf8View text, size_t at, size_t limit) {
  while (at > limit) {
    const size_t before = text.before(at);
    if (!isUnicodeSpace(text.characterAt(before).code)) break;
    at = before;
  }
  return at;
}

size_t spaceEnd(Utf8View text, size_t at) {
  while (at < text.size()) {
    const auto character = text.characterAt(at);
    if (!isUnicodeSpace(character.code)) break;
    at += character.length;
  }
  return at;
}

constexpr uint64_t kWorkPerNode = 4;
}  // namespace

uint32_t AddedVocabulary::Trie::childOf(uint32_t node, char byte, uint64_t& steps) const {
  ++steps;
  if (node == 0) return first_[static_cast<unsigned char>(byte)];
  uint32_t child = nodes_[node].child;
  for (; child != 0 && nodes_[child].byte != byte; ++steps) child = nodes_[child].sibling;
  return child;
}

void AddedVocabulary::Trie::insert(std::string_view content, int32_t id, WorkMeter& meter) {
  uint32_t node = 0;
  uint64_t steps = 0;
  for (const char byte : content) {
    uint32_t child = childOf(node, byte, steps);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[node].child, .byte = byte});
      nodes_[node].child = child;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = child;
    }
    node = child;
  }
  meter.charge(steps * kWorkPerNode);
  // If several tokens normalize to the same text, the library of Hugging Face finds one of them at random, most often
  // the one with the lowest id.
  if (nodes_[node].id < 0 && node != 0) nodes_[node].id = id;
}

size_t AddedVocabulary::Trie::longest(std::string_view text, int32_t& id, uint64_t& steps) const {
  uint32_t node = 0;
  size_t length = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = childOf(node, text[i], steps);
    if (node == 0) break;
    if (nodes_[node].id >= 0) id = nodes_[node].id, length = i + 1;
  }
  return length;
}

void AddedVocabulary::add(AddedToken token, int32_t id) {
  if (token.special) special_.emplace(token.content.bytes(), id);
  const auto old = by_id_.find(id);
  // The library still decodes a token to its normalized form when it is no longer normalized.
  if (old != by_id_.end() && old->second.normalized && !token.normalized) token.decoded = old->second.decoded;
  by_content_[token.content.bytes()] = id;
  by_id_[id] = std::move(token);
}

void AddedVocabulary::prepareSearch(WorkMeter& meter) {
  for (const auto& [id, token] : by_id_) {
    if (token.normalized)
      normalized_.insert(token.decoded.bytes(), id, meter);
    else
      plain_.insert(token.content.bytes(), id, meter);
  }
}

const AddedToken* AddedVocabulary::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second;
}

std::optional<int32_t> AddedVocabulary::tokenId(std::string_view content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? std::nullopt : std::optional(it->second);
}

void AddedVocabulary::split(Utf8View text, Search search, EncodeWork& work, FunctionRef<void(const Part&)> sink) const {
  const Trie& trie = search.normalized ? normalized_ : plain_;
  const std::string_view bytes = text.bytes();
  size_t done = 0;
  // White space after the last token with rstrip. Tokens that end inside it reuse the range instead of scanning again.
  size_t space_begin = 0, space_end = 0;
  constexpr uint64_t kChargeEvery = 4096;
  uint64_t steps = 0;
  for (size_t at = 0; at < bytes.size() && !trie.empty();) {
    if (steps >= kChargeEvery) work.meter.charge(std::exchange(steps, 0) * kWorkPerNode);
    if (!trie.begins(bytes[at])) {
      ++at, ++steps;
      continue;
    }
    int32_t id = -1;
    const size_t length = trie.longest(bytes.substr(at), id, steps);
    if (length == 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = by_id_.at(id);
    if (token.single_word && (wordBefore(text, begin) || wordAt(text, end))) continue;
    if (!search.special && isSpecial(token.content.bytes())) continue;
    // White space that the previous token has taken stays with that token.
    if (token.lstrip) {
      const size_t before = spaceBegin(text, begin, std::min(done, begin));
      steps += begin - before;
      begin = std::max(before, done);
    }
    if (token.rstrip) {
      if (end < space_begin || end > space_end) {
        space_begin = end;
        space_end = spaceEnd(text, end);
        steps += space_end - end;
      }
      end = space_end;
    }
    if (done < begin) sink({-1, done, begin});
    // Empty if the token is all white space and the previous token has taken all of it.
    if (begin < end) sink({id, begin, end});
    done = end;
  }
  work.meter.charge(steps * kWorkPerNode);
  if (done < bytes.size()) sink({-1, done, bytes.size()});
}

size_t AddedVocabulary::memoryBytes() const {
  constexpr size_t kTokenBytes = sizeof(AddedToken) + 3 * 96;  // including its map entries
  size_t bytes = sizeof(*this) + plain_.memoryBytes() + normalized_.memoryBytes();
  for (const auto& [id, token] : by_id_) bytes += kTokenBytes + 3 * token.content.size() + token.decoded.size();
  return bytes;
}

}  // namespace chorus
