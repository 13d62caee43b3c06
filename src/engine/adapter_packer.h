// Lays an adapter's share of one rank out in memory, as ops read it.
#pragma once

#include <cstdint>

#include "engine/engine_layout.h"
#include "lora/adapter.h"
#include "models/adapter_parts.h"
#include "models/decoder.h"

namespace chorus {

// A piece of packed memory starts on a cache line.
inline int64_t packedPiece(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class AdapterPacker {
 public:
  // config and table: the engine's, which must outlive this.
  AdapterPacker(const ModelConfig& config, const WeightTable& table, int32_t rank);

  // part: cut for the rank (lora/shard.h). Bytes that pack will write; reads no values.
  int64_t bytes(const Adapter& part) const;
  // Writes them at staging, and gives what stands in them to `parts` by the addresses that they will have: the same
  // offsets from device. base: the rank's weights in host memory. Magnitudes are normalised.
  void pack(const Adapter& part, const DecoderWeights& base, std::byte* staging, const std::byte* device,
            AdapterParts& parts) const;

  // Where a layer's module stands: its first output feature, of the runtime's linear. Throws Error(kUnsupported).
  struct Place {
    int32_t layer = 0;  // local id
    LinearId linear = LinearId::kQkv;
    int64_t out_begin = 0;
  };
  Place placeOf(const AdapterModule& module) const;

 private:
  class Writer;
  Place placeOf(const WeightRow& row, int32_t layer, int64_t rank_row_begin) const;

  const ModelConfig& config_;
  const WeightTable& table_;
  int32_t rank_;
};

// The runtime's linear of a layer and its bias (null: it has none), in `layer`.
const PackedWeight& linearOf(const DecoderLayerWeights& layer, LinearId linear);
const float* biasOf(const DecoderLayerWeights& layer, LinearId linear);

}  // namespace chorus
