// Lays out one rank's share of an adapter in memory, in the form that the ops read.
#pragma once

#include <cstdint>

#include "checkpoint/weight_table.h"
#include "kernels/weight_packer.h"
#include "lora/adapter.h"
#include "models/adapter_parts.h"
#include "models/model_weights.h"

namespace chorus {

// Size of a piece of packed memory. It is rounded up, so that the next piece starts on a cache line.
inline int64_t packedPiece(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class AdapterPacker {
 public:
  // config, table and packer are the engine's and must outlive this object. lora_format: of A and B, the model's type
  // or int8LoraFormat().
  AdapterPacker(const ModelConfig& config, const WeightTable& table, const WeightPacker& packer, int32_t rank,
                const WeightFormat& lora_format);

  // Number of bytes that pack() will write. part: the rank's shard (lora/shard.h), possibly with shapes only.
  int64_t bytes(const Adapter& part) const;
  // Writes the packed shard to `staging`, and adds its contents to `parts` with the addresses that they will have in
  // device memory: the same offsets from `device`. base: the rank's weights in host memory. The shard's magnitudes must
  // be normalised. throttle: is charged for converted and packed bytes; may be null.
  void pack(const Adapter& part, const ModelWeights& base, std::byte* staging, const std::byte* device,
            AdapterParts& parts, BackgroundThrottle* throttle) const;

  // The linear that a module adapts on this rank, and the module's first output feature in it. The module must not be
  // the token embedding's. Throws Error(kUnsupported) for a module that the model does not have.
  struct Place {
    int32_t layer = 0;  // local id, or kOutsideLayers
    LinearId linear = LinearId::kQkv;
    int64_t out_begin = 0;
    int64_t expert = -1;  // of a linear with experts; -1: the linear has none
    int64_t experts = 0;  // of the linear
  };
  Place placeOf(const AdapterModule& module) const;

 private:
  class Writer;
  Place placeOf(const WeightRow& row, int32_t layer, int64_t rank_row_begin) const;
  int32_t localLayer(int32_t layer) const;

  const ModelConfig& config_;
  const WeightTable& table_;
  const WeightPacker& packer_;
  int32_t rank_;
  WeightFormat lora_format_;
};

}  // namespace chorus
