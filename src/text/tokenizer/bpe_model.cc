#include "text/tokenizer/bpe_model.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kCachedWordBytes = 64;
constexpr size_t kCachedWord = 96;  // bytes of a cache entry besides its text and tokens
constexpr uint64_t kCacheLookup = 64;
constexpr size_t kMaxDecorationBytes = 256;
}  // namespace

BpeModel::BpeModel(const Json& json, const std::string& source, WorkMeter& meter)
    : TokenModel(Vocabulary::fromModel(json, source)) {
  for (uint32_t code = 0; code < kTableCharacters; ++code) {
    Utf8Text character;
    character.append(code);
    symbols_[code] = tokenId(character.bytes()).value_or(-1);
  }
  if (tokenModelType(json, source) == kRankedModel) {
    ignore_merges_ = true;
    findMerges(meter);
  } else {
    readOptions(json, source);
    readMerges(json, source);
  }
}

void BpeModel::readOptions(const Json& json, const std::string& source) {
  if (jsonGetOr<double>(json, "dropout", 0.0, source) != 0.0) {
    fail(ErrorCode::kUnsupported, "{}: 'dropout' makes tokens random and is not supported; set it to null", source);
  }
  fuse_unknown_ = jsonGetOr<bool>(json, "fuse_unk", false, source);
  ignore_merges_ = jsonGetOr<bool>(json, "ignore_merges", false, source);
  continuing_prefix_ = jsonGetOr<std::string>(json, "continuing_subword_prefix", "", source);
  end_suffix_ = jsonGetOr<std::string>(json, "end_of_word_suffix", "", source);
  const auto unknown = jsonGetOr<std::string>(json, "unk_token", "", source);
  if (!unknown.empty()) {
    unknown_ = tokenId(unknown);
    if (!unknown_) fail(ErrorCode::kCorrupt, "{}: the unk_token is not in 'vocab'", source);
  }
  if (jsonGetOr<bool>(json, "byte_fallback", false, source)) bytes_.emplace(vocabulary_);
  // A character with a prefix or suffix is a different token than the character alone.
  may_cut_ = continuing_prefix_.empty() && end_suffix_.empty();
  if (std::max(continuing_prefix_.size(), end_suffix_.size()) > kMaxDecorationBytes) {
    fail(ErrorCode::kUnsupported, "{}: a prefix or suffix of more than {} bytes", source, kMaxDecorationBytes);
  }
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
      fail(ErrorCode::kCorrupt, "{}: merge {} uses or produces a token that is not in 'vocab'", source, rank);
    }
    addMerge(*left_id, *right_id, rank++, *merged);
  }
}

// Every way to join two tokens into a token, with the id of that token as its rank.
void BpeModel::findMerges(WorkMeter& meter) {
  for (int32_t id = 0; id < vocabulary_.idEnd(); ++id) {
    const Utf8Text* token = vocabulary_.tokenText(id);
    if (token == nullptr || token->empty()) continue;
    const Utf8View text = *token;
    for (size_t cut = text.characterAt(0).length; cut < text.size(); cut += text.characterAt(cut).length) {
      meter.charge(text.size());  // both parts are hashed
      const auto left = tokenId(text.sub(0, cut).bytes());
      if (!left) continue;
      const auto right = tokenId(text.from(cut).bytes());
      if (right) addMerge(*left, *right, static_cast<uint32_t>(id), id);
    }
  }
}

void BpeModel::addMerge(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  merges_.add(left, right, rank, merged);
  forbidCutsAt(left, right);
}

// Records that the last character of the left token and the first character of the right one may merge.
void BpeModel::forbidCutsAt(int32_t left, int32_t right) {
  const Utf8View first = *vocabulary_.tokenText(left), second = *vocabulary_.tokenText(right);
  const auto is_byte = [&](Utf8View token) { return bytes_ && byteOfFallbackToken(token.bytes()); };
  const bool named = left == unknown_ || right == unknown_ || is_byte(first) || is_byte(second);
  // The text of an unknown or byte token doesn't show which characters the token represents.
  if (named || first.empty() || second.empty()) may_cut_ = false;
  if (!may_cut_) return;
  const uint32_t before = first.characterAt(first.before(first.size())).code, after = second.characterAt(0).code;
  if (before < kTableCharacters && after < kTableCharacters)
    table_pairs_.set(before * kTableCharacters + after);
  else
    other_pairs_.insert(uint64_t{before} << 32 | after);
}

bool BpeModel::cutsBetween(uint32_t before, uint32_t after) const {
  if (before < kTableCharacters && after < kTableCharacters) {
    return !table_pairs_.test(before * kTableCharacters + after);
  }
  return !other_pairs_.contains(uint64_t{before} << 32 | after);
}

// True if the word may be cut at `at`: both characters are tokens, and no merge joins them.
bool BpeModel::isCut(Utf8View word, size_t before, size_t at) const {
  const auto left = word.characterAt(before), right = word.characterAt(at);
  if (!cutsBetween(left.code, right.code)) return false;
  const std::string_view bytes = word.bytes();
  return symbolOf(left.code, bytes.substr(before, left.length)) >= 0 &&
         symbolOf(right.code, bytes.substr(at, right.length)) >= 0;
}

void BpeModel::encode(Utf8View word, EncodeWork& work, TokenSink& sink) const {
  constexpr uint64_t kWorkPerCharacter = 8;
  if (word.empty()) return;
  if (ignore_merges_ && word.size() <= Vocabulary::kMaxTokenBytes) {
    work.meter.charge(word.size());
    if (const auto id = tokenId(word.bytes())) return sink.push(*id);
  }
  if (word.size() <= kCachedWordBytes || !may_cut_) return encodeSegment(word, work, sink);
  size_t begin = 0, before = 0;
  for (size_t at = word.characterAt(0).length; at < word.size(); at += word.characterAt(at).length) {
    work.meter.charge(kWorkPerCharacter);
    if (isCut(word, before, at)) {
      encodeSegment(word.sub(begin, at), work, sink);
      begin = at;
    }
    before = at;
  }
  encodeSegment(word.from(begin), work, sink);
}

void BpeModel::encodeSegment(Utf8View segment, EncodeWork& work, TokenSink& sink) const {
  std::vector<int32_t>& ids = sink.all();
  const size_t first = ids.size();
  const auto merge = [&] {
    appendFirstSymbols(segment, work, sink);
    ids.resize(first + merges_.apply(std::span(ids).subspan(first), work));
  };
  if (segment.size() > kCachedWordBytes) {
    merge();
    return sink.check();
  }
  work.meter.charge(kCacheLookup);
  const std::string_view key = segment.bytes();
  CacheShard& shard = cache_[std::hash<std::string_view>()(key) % kCacheShards];
  {
    const std::lock_guard lock(shard.mutex);
    if (const auto it = shard.words.find(key); it != shard.words.end()) {
      ids.insert(ids.end(), it->second.begin(), it->second.end());
      return sink.check();
    }
  }
  merge();
  const size_t bytes = kCachedWord + key.size() + (ids.size() - first) * sizeof(int32_t);
  {
    const std::lock_guard lock(shard.mutex);
    if (shard.bytes + bytes <= kCacheShardBytes &&
        shard.words.try_emplace(std::string(key), ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end()).second) {
      shard.bytes += bytes;
    }
  }
  sink.check();
}

// Appends one symbol per character, before any merge. A character that is not in the vocabulary becomes its byte
// tokens, else the unknown token, else nothing.
void BpeModel::appendFirstSymbols(Utf8View word, EncodeWork& work, TokenSink& sink) const {
  constexpr uint64_t kWorkPerCharacter = 24;
  std::vector<int32_t>& symbols = sink.all();
  sink.reserve(countCharacters(word.bytes()));
  bool unknown_pending = false;
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const auto [code, length] = word.characterAt(at);
    const size_t end = at + length;
    std::string_view character = word.bytes().substr(at, end - at);
    const bool prefix = at > 0 && !continuing_prefix_.empty();
    const bool suffix = end == word.size() && !end_suffix_.empty();
    work.meter.charge(kWorkPerCharacter);
    if (prefix || suffix) {
      decorated = prefix ? continuing_prefix_ : "";
      decorated += character;
      if (suffix) decorated += end_suffix_;
      work.meter.charge(decorated.size());
      character = decorated;
    }
    at = end;
    const int32_t symbol = prefix || suffix ? tokenId(character).value_or(-1) : symbolOf(code, character);
    if (symbol >= 0) {
      if (unknown_pending) symbols.push_back(*unknown_);
      unknown_pending = false;
      symbols.push_back(symbol);
      continue;
    }
    if (bytes_ && bytes_->append(character, symbols)) continue;
    if (!unknown_) continue;
    if (unknown_pending && !fuse_unknown_) symbols.push_back(*unknown_);
    unknown_pending = true;
  }
  if (unknown_pending) symbols.push_back(*unknown_);
}

size_t BpeModel::memoryBytes() const {
  constexpr size_t kSetNode = 32 + 8;
  return sizeof(*this) + TokenModel::memoryBytes() + merges_.memoryBytes() + other_pairs_.size() * kSetNode +
         kCacheShards * kCacheShardBytes;
}

}  // namespace chorus
