// Lays an adapter's share of one rank out in memory, as ops read it.
#pragma once

#include <cstdint>

#include "checkpoint/weight_table.h"
#include "lora/adapter.h"
#include "models/adapter_parts.h"
#include "models/model_weights.h"

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
  void pack(const Adapter& part, const ModelWeights& base, std::byte* staging, const std::byte* device,
            AdapterParts& parts) const;

  // The linear that a module adapts, and the module's first output feature in it. The module is not the embedding's.
  // Throws Error(kUnsupported) for one that the model does not have.
  struct Place {
    int32_t layer = 0;  // local id, or kOutsideLayers
    LinearId linear = LinearId::kQkv;
    int64_t out_begin = 0;
  };
  Place placeOf(const AdapterModule& module) const;

 private:
  class Writer;
  Place placeOf(const WeightRow& row, int32_t layer, int64_t rank_row_begin) const;
  int32_t localLayer(int32_t layer) const;

  const ModelConfig& config_;
  const WeightTable& table_;
  int32_t rank_;
};

}  // namespace chorus
