#include "text/tokenizer/bpe_model.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kCachedWordBytes = 128;
constexpr size_t kCachedWordsPerShard = 4096;

const Json& vocabOf(const Json& json) {
  static const Json kNone;
  const auto it = json.find("vocab");
  return it == json.end() ? kNone : *it;
}

uint64_t pairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
}  // namespace

BpeModel::BpeModel(const Json& json, const std::string& source)
    : TokenModel(Vocabulary::fromObject(vocabOf(json), source)) {
  if (jsonGetOr<double>(json, "dropout", 0.0, source) != 0.0) {
    fail(ErrorCode::kUnsupported, "{}: 'dropout' makes tokens random and is not supported; set it to null", source);
  }
  fuse_unknown_ = jsonGetOr<bool>(json, "fuse_unk", false, source);
  ignore_merges_ = jsonGetOr<bool>(json, "ignore_merges", false, source);
  continuing_prefix_ = jsonGetOr<std::string>(json, "continuing_subword_prefix", "", source);
  end_suffix_ = jsonGetOr<std::string>(json, "end_of_word_suffix", "", source);
  readMerges(json, source);
  const auto unknown = jsonGetOr<std::string>(json, "unk_token", "", source);
  if (!unknown.empty()) {
    unknown_ = tokenId(unknown);
    if (!unknown_) fail(ErrorCode::kCorrupt, "{}: the unk_token is not in 'vocab'", source);
  }
  if (jsonGetOr<bool>(json, "byte_fallback", false, source)) bytes_.emplace(vocabulary_);
}

void BpeModel::readMerges(const Json& json, const std::string& source) {
  const auto merges = json.find("merges");
  if (merges == json.end() || !merges->is_array()) {
    fail(ErrorCode::kInvalidArgument, "{}: 'merges' must be a list", source);
  }
  merges_.reserve(merges->size());
  uint32_t rank = 0;
  for (const Json& merge : *merges) {
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      if (line.starts_with("#version")) continue;
      const size_t space = line.find(' ');
      if (space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos) {
        left = line.substr(0, space), right = line.substr(space + 1);
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>(), right = merge[1].get_ref<const std::string&>();
    }
    if (left.data() == nullptr) {
      fail(ErrorCode::kCorrupt, "{}: merge {} must be \"a b\" or [\"a\", \"b\"]", source, rank);
    }
    const auto left_id = tokenId(left), right_id = tokenId(right);
    if (right.size() < continuing_prefix_.size()) {
      fail(ErrorCode::kCorrupt, "{}: merge {} lacks the continuing_subword_prefix", source, rank);
    }
    const auto merged = tokenId(std::string(left) + std::string(right.substr(continuing_prefix_.size())));
    if (!left_id || !right_id || !merged) {
      fail(ErrorCode::kCorrupt, "{}: merge {} names or makes a token that is not in 'vocab'", source, rank);
    }
    merges_[pairKey(*left_id, *right_id)] = {rank++, *merged};
  }
}

const BpeModel::Merge* BpeModel::findMerge(int32_t left, int32_t right) const {
  const auto it = merges_.find(pairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const auto id = tokenId(word)) {
      ids.push_back(*id);
      return;
    }
  }
  if (word.size() > kCachedWordBytes) {
    auto symbols = firstSymbols(word);
    mergeSymbols(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
    return;
  }
  const std::string key(word);
  CacheShard& shard = cache_[std::hash<std::string>()(key) % kCacheShards];
  {
    const std::lock_guard lock(shard.mutex);
    if (const auto it = shard.words.find(key); it != shard.words.end()) {
      ids.insert(ids.end(), it->second.begin(), it->second.end());
      return;
    }
  }
  auto symbols = firstSymbols(word);
  mergeSymbols(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  const std::lock_guard lock(shard.mutex);
  if (shard.words.size() < kCachedWordsPerShard) shard.words.emplace(key, std::move(symbols));
}

// One symbol per character, before any merge. A character that the vocabulary lacks becomes its bytes, or the
// unknown token, or nothing.
std::vector<int32_t> BpeModel::firstSymbols(std::string_view word) const {
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  bool unknown_pending = false;
  std::string decorated;
  for (size_t i = 0; i < word.size();) {
    const size_t end = std::min(word.size(), i + static_cast<size_t>(utf8Length(word[i])));
    std::string_view character = word.substr(i, end - i);
    const bool prefix = i > 0 && !continuing_prefix_.empty();
    const bool suffix = end == word.size() && !end_suffix_.empty();
    if (prefix || suffix) {
      decorated = (prefix ? continuing_prefix_ : "") + std::string(character) + (suffix ? end_suffix_ : "");
      character = decorated;
    }
    i = end;
    if (const auto id = tokenId(character)) {
      if (unknown_pending) symbols.push_back(*unknown_);
      unknown_pending = false;
      symbols.push_back(*id);
      continue;
    }
    if (bytes_ && bytes_->append(character, symbols)) continue;
    if (!unknown_) continue;
    if (unknown_pending && !fuse_unknown_) symbols.push_back(*unknown_);
    unknown_pending = true;
  }
  if (unknown_pending) symbols.push_back(*unknown_);
  return symbols;
}

// Applies merges by rank, leftmost first among equals, until none is left.
void BpeModel::mergeSymbols(std::vector<int32_t>& symbols) const {
  struct Node {
    int32_t previous;
    int32_t next;
    bool alive;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<Node> nodes(symbols.size());
  for (int32_t i = 0; i < count; ++i) nodes[static_cast<size_t>(i)] = {i - 1, i + 1 < count ? i + 1 : -1, true};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Merge* merge = findMerge(symbols[static_cast<size_t>(left)], symbols[static_cast<size_t>(right)]);
    if (merge != nullptr) queue.push({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Node& left = nodes[static_cast<size_t>(best.position)];
    if (!left.alive || left.next < 0) continue;
    const int32_t right_index = left.next;
    Node& right = nodes[static_cast<size_t>(right_index)];
    // A candidate is stale when the pair at its position has changed to one that makes another token.
    const Merge* merge =
        findMerge(symbols[static_cast<size_t>(best.position)], symbols[static_cast<size_t>(right_index)]);
    if (merge == nullptr || merge->id != best.id) continue;
    symbols[static_cast<size_t>(best.position)] = best.id;
    right.alive = false;
    left.next = right.next;
    if (right.next >= 0) nodes[static_cast<size_t>(right.next)].previous = best.position;
    consider(left.previous, best.position);
    consider(best.position, left.next);
  }
  size_t kept = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (nodes[i].alive) symbols[kept++] = symbols[i];
  }
  symbols.resize(kept);
}

}  // namespace chorus
