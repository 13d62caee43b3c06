// Byte pair encoding: the "model" of a tokenizer.json.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/seeded_hash.h"
#include "text/tokenizer/bpe_merges.h"
#include "text/tokenizer/token_model.h"

namespace chorus {

class BpeModel final : public TokenModel {
 public:
  // Throws Error that names source and the field, and what the meter throws.
  BpeModel(const Json& json, const std::string& source, WorkMeter& meter);

  // O(n log n) in the word's length.
  void encode(Utf8View word, EncodeWork& work, TokenSink& sink) const override;
  size_t memoryBytes() const override;

 private:
  // Cache of the encodings of short words, in shards so that threads rarely contend for a mutex. A full shard accepts
  // no more words.
  struct CacheShard {
    std::mutex mutex;
    size_t bytes = 0;
    std::unordered_map<std::string, std::vector<int32_t>, SeededHash, std::equal_to<>> words;
  };
  static constexpr size_t kCacheShards = 16;
  static constexpr size_t kCacheShardBytes = size_t{128} << 10;

  void readOptions(const Json& json, const std::string& source);
  void readMerges(const Json& json, const std::string& source);
  void findMerges(WorkMeter& meter);
  void addMerge(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  void forbidCutsAt(int32_t left, int32_t right);
  bool cutsBetween(uint32_t before, uint32_t after) const;
  bool isCut(Utf8View word, size_t before, size_t at) const;
  // The token of one character of a text, -1 if there is none. bytes: the character's own.
  int32_t symbolOf(uint32_t code, std::string_view bytes) const {
    return code < kTableCharacters ? symbols_[code] : tokenId(bytes).value_or(-1);
  }
  void encodeSegment(Utf8View segment, EncodeWork& work, TokenSink& sink) const;
  void appendFirstSymbols(Utf8View word, EncodeWork& work, TokenSink& sink) const;

  BpeMerges merges_;
  // Characters below this number, among them the byte-level alphabet, are looked up in tables.
  static constexpr uint32_t kTableCharacters = 512;
  std::array<int32_t, kTableCharacters> symbols_;  // the token of each character; -1 if there is none
  std::optional<int32_t> unknown_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::optional<ByteTokens> bytes_;  // set for a model with byte_fallback
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  // A long word is cut between two characters that no merge can join. The sets hold the pairs of characters that a
  // merge may join; may_cut_ is false if a model's words can't be cut at all.
  bool may_cut_ = true;
  std::bitset<kTableCharacters * kTableCharacters> table_pairs_;
  std::unordered_set<uint64_t, SeededHash> other_pairs_;
  mutable std::array<CacheShard, kCacheShards> cache_;
};

}  // namespace chorus
