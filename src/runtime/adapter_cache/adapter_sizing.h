// Computes the capacities of an engine's adapter cache levels from a PeftCacheConfig.
#pragma once

#include <optional>

#include "chorus/executor.h"
#include "engine/engine.h"
#include "kernels/tensor.h"
#include "runtime/adapter_cache/adapter_store.h"

namespace chorus {

// Sizes of adapters that adapt every linear that the engine allows (lora_target_modules).
class AdapterSizing {
 public:
  // lora_format: see SessionOptions.
  explicit AdapterSizing(const Engine& engine, std::optional<WeightFormat> lora_format = std::nullopt)
      : AdapterSizing(engine.config(), engine.buildConfig(), lora_format) {}
  AdapterSizing(const ModelConfig& config, const BuildConfig& build, std::optional<WeightFormat> lora_format);

  // An adapter of every allowed linear on every layer, with DoRA if the engine was built for it.
  AdapterSize fullAdapter(int32_t rank) const;
  // Elements of a rank-1 module of the widest kind on one layer: the unit of numHostModuleLayer and
  // numDeviceModuleLayer.
  int64_t widestModuleElements() const { return widest_; }
  // Bytes that suffice for `elements` elements of adapters on any modules, with ranks in [from, to]. Packed A is padded
  // to a multiple of 16 ranks, so adapters of small rank take more bytes per element: a level for 8 adapters of rank 64
  // also holds 64 of rank 8 only with this memory.
  int64_t bytesFor(int64_t elements, int32_t from, int32_t to) const;

 private:
  // A linear of the layers that adapters may adapt: whole `in` and `out`, and those of each tensor-parallel rank's
  // shard.
  struct Module {
    int64_t in = 0, out = 0;
    int64_t copies = 0;  // over all layers and experts
    std::vector<std::pair<int64_t, int64_t>> ranks;
  };
  int64_t bytesOf(const Module& module, int32_t rank) const;

  const WeightPacker& packer_;
  std::vector<Module> modules_;  // those that one adapter can have together
  int32_t layers_;
  WeightFormat format_;
  bool dora_;
  int64_t widest_ = 0;
};

// SessionOptions::lora_format of a PeftCacheConfig.
std::optional<WeightFormat> loraFormat(const executor::PeftCacheConfig& config);

// free_bytes: free memory once the engine is loaded. On the CPU the device level only references weights of the host
// level, so its default capacity is the host level's. Throws Error if a setting is out of range, or if a level cannot
// hold one adapter of rank maxAdapterSize (at most the engine's max_lora_rank) on every allowed module.
AdapterCapacity adapterCapacity(const executor::PeftCacheConfig& config, const Engine& engine, int64_t free_bytes);
// Overload for an engine that is not built yet.
AdapterCapacity adapterCapacity(const executor::PeftCacheConfig& config, const ModelConfig& model,
                                const BuildConfig& build, int64_t free_bytes);

}  // namespace chorus
