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

#include "text/tokenizer/token_model.h"

namespace chorus {

class BpeModel final : public TokenModel {
 public:
  // Throws Error that names source and the field.
  BpeModel(const Json& json, const std::string& source);

  // O(n log n) in the word's length.
  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

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

  void readMerges(const Json& json, const std::string& source);
  std::vector<int32_t> firstSymbols(std::string_view word) const;
  void mergeSymbols(std::vector<int32_t>& symbols) const;
  const Merge* findMerge(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Merge, PairHash> merges_;
  std::optional<int32_t> unknown_;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::optional<ByteTokens> bytes_;  // of a model with byte_fallback
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  mutable std::array<CacheShard, kCacheShards> cache_;
};

}  // namespace chorus
