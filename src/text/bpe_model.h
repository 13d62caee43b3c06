// Byte pair encoding: the "model" of a tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace chorus {

class BpeModel {
 public:
  // Throws Error that names source and the field.
  BpeModel(const Json& json, const std::string& source);

  // Appends the tokens of one word of valid UTF-8. O(n log n) in its length. Thread-safe.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  std::optional<int32_t> tokenId(std::string_view token) const;
  // Null for an id that has no token.
  const std::string* tokenText(int32_t id) const;
  // Number of tokens, and one more than the largest id.
  size_t size() const { return ids_.size(); }
  int32_t idEnd() const { return static_cast<int32_t>(texts_.size()); }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const {
      pair *= 0x9E3779B97F4A7C15u;
      return static_cast<size_t>(pair ^ (pair >> 32));
    }
  };
  // Encodings of short words, by shards so that threads seldom meet. A full shard takes no more.
  struct CacheShard {
    std::mutex mutex;
    std::unordered_map<std::string, std::vector<int32_t>> words;
  };
  static constexpr size_t kCacheShards = 16;

  void readVocabulary(const Json& json, const std::string& source);
  void readMerges(const Json& json, const std::string& source);
  std::vector<int32_t> firstSymbols(std::string_view word) const;
  void mergeSymbols(std::vector<int32_t>& symbols) const;
  const Merge* findMerge(int32_t left, int32_t right) const;

  std::vector<std::string> texts_;
  std::vector<bool> present_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of texts_
  std::unordered_map<uint64_t, Merge, PairHash> merges_;
  std::optional<int32_t> unknown_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::array<int32_t, 256> byte_ids_{};  // of "<0xNN>", -1 when absent
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  mutable std::array<CacheShard, kCacheShards> cache_;
};

}  // namespace chorus
