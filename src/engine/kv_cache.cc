#include "engine/kv_cache.h"

#include <algorithm>

#include "models/architecture.h"
#include "models/kv_groups.h"

namespace chorus {
namespace {

ModelSpec wholeSpec(const ModelConfig& config, const KvCacheOptions& options) {
  ModelSpec spec = findArchitecture(config.architecture).modelSpec(config);
  limitWindows(options.attention_windows, spec);
  return spec;
}

KvLayer kvLayer(const LayerSpec& layer, DType dtype, int32_t tokens_per_block) {
  KvLayer kv = {.dtype = dtype,
                .num_kv_heads = layer.attention.heads.kv,
                .head_size = static_cast<int32_t>(layer.attention.heads.size),
                .tokens_per_block = tokens_per_block};
  kv.block_stride = kvBlockBytes(kv);
  return kv;
}
}  // namespace

RankKvCache::RankKvCache(const ModelConfig& config, const ModelSpec& rank_spec, int32_t rank,
                         const KvCacheOptions& options) {
  const auto groups = kvGroups(wholeSpec(config, options), options.max_seq_len);
  const LayerRange range = stageLayers(config.num_hidden_layers, config.mapping, config.mapping.ppRank(rank));
  for (const LayerSpec& layer : rank_spec.layers) {
    layers_.push_back(kvLayer(layer, config.dtype, options.tokens_per_block));
  }
  place_of_.resize(layers_.size());
  for (size_t group = 0; group < groups.size(); ++group) {
    size_t place = 0;
    for (const int32_t layer : groups[group].layers) {
      if (layer < range.begin || layer >= range.end) continue;
      KvLayer& kv = layers_[static_cast<size_t>(layer - range.begin)];
      kv.group = static_cast<int32_t>(group);
      place_of_[static_cast<size_t>(layer - range.begin)] = static_cast<int32_t>(place);
      if (place == places_.size()) places_.push_back(kv);
      if (kv.block_stride > places_[place].block_stride) places_[place] = kv;
      ++place;
    }
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].block_stride = places_[static_cast<size_t>(place_of_[i])].block_stride;
  }
}

int64_t RankKvCache::blockBytes() const {
  int64_t bytes = 0;
  for (const KvLayer& place : places_) bytes += place.block_stride;
  return bytes;
}

void RankKvCache::allocate(Backend& backend, int64_t num_blocks) {
  pool_ = backend.allocate(static_cast<size_t>(blockBytes() * num_blocks));
  std::byte* base = pool_.as<std::byte>();
  for (KvLayer& place : places_) {
    place.base = base;
    base += place.block_stride * num_blocks;
  }
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].base = places_[static_cast<size_t>(place_of_[i])].base;
}

void RankKvCache::copy(std::span<const BlockCopy> copies, Backend& backend, Stream stream) const {
  if (copies.empty()) return;
  for (const KvLayer& place : places_) backend.copyBlocks(place, copies, stream);
}

KvCacheShape kvCacheShape(const ModelConfig& config, const KvCacheOptions& options) {
  KvCacheShape shape;
  const ModelSpec spec = wholeSpec(config, options);
  for (const KvGroup& group : kvGroups(spec, options.max_seq_len)) {
    shape.windows.push_back(static_cast<int32_t>(group.window));
  }
  for (int32_t rank = 0; rank < config.mapping.worldSize(); ++rank) {
    const ModelSpec rank_spec = rankSpec(spec, config.mapping, rank);
    shape.block_bytes += RankKvCache(config, rank_spec, rank, options).blockBytes();
    for (const LayerSpec& layer : rank_spec.layers) {
      shape.token_bytes += kvLayer(layer, config.dtype, 1).block_stride;
    }
  }
  return shape;
}

}  // namespace chorus
