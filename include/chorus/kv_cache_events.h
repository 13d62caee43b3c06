// KV cache events, as programs for TensorRT-LLM name them. This build has none, so no manager is ever returned.
#pragma once

#include <deque>
#include <variant>

#include "chorus/types.h"

namespace chorus::runtime {
using LoraTaskIdType = std::uint64_t;
// A token of a block's key. The extra id distinguishes virtual tokens.
struct UniqueToken {
  executor::TokenIdType tokenId = 0;
  std::uint64_t tokenExtraId = 0;
  bool operator==(const UniqueToken&) const = default;
};
using VecUniqueTokens = std::vector<UniqueToken>;
}  // namespace chorus::runtime

namespace chorus::executor {

struct KVCacheCreatedData {
  std::vector<SizeType32> numBlocksPerCacheLevel;
};

struct KVCacheStoredBlockData {
  KVCacheStoredBlockData(IdType blockHashIn, runtime::VecUniqueTokens tokensIn,
                         std::optional<runtime::LoraTaskIdType> loraIdIn, SizeType32 cacheLevelIn,
                         SizeType32 priorityIn)
      : blockHash(blockHashIn),
        tokens(std::move(tokensIn)),
        loraId(loraIdIn),
        cacheLevel(cacheLevelIn),
        priority(priorityIn) {}
  IdType blockHash;
  runtime::VecUniqueTokens tokens;
  std::optional<runtime::LoraTaskIdType> loraId;
  SizeType32 cacheLevel;
  SizeType32 priority;
};

// A chain of blocks, each the parent of the next.
struct KVCacheStoredData {
  std::optional<IdType> parentHash;
  std::vector<KVCacheStoredBlockData> blocks;
};

struct KVCacheRemovedData {
  std::vector<IdType> blockHashes;
};

template <typename T>
struct KVCacheEventDiff {
  T oldValue;
  T newValue;
};

struct KVCacheUpdatedData {
  explicit KVCacheUpdatedData(IdType blockHashIn) : blockHash(blockHashIn) {}
  KVCacheUpdatedData& cacheLevelUpdated(SizeType32 oldValue, SizeType32 newValue) {
    cacheLevel = KVCacheEventDiff<SizeType32>{oldValue, newValue};
    return *this;
  }
  KVCacheUpdatedData& priorityUpdated(SizeType32 oldValue, SizeType32 newValue) {
    priority = KVCacheEventDiff<SizeType32>{oldValue, newValue};
    return *this;
  }
  IdType blockHash;
  std::optional<KVCacheEventDiff<SizeType32>> cacheLevel;
  std::optional<KVCacheEventDiff<SizeType32>> priority;
};

using KVCacheEventData = std::variant<KVCacheCreatedData, KVCacheStoredData, KVCacheRemovedData, KVCacheUpdatedData>;

struct KVCacheEvent {
  KVCacheEvent(IdType eventIdIn, KVCacheEventData dataIn) : eventId(eventIdIn), data(std::move(dataIn)) {}
  IdType eventId;
  KVCacheEventData data;
};

class KVCacheEventManager {
 public:
  std::deque<KVCacheEvent> getLatestEvents(std::optional<std::chrono::milliseconds> = std::nullopt) { return {}; }
};

}  // namespace chorus::executor
