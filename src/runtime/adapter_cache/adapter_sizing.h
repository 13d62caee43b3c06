// How much the levels of an engine's adapter cache hold: from a configuration to capacities.
#pragma once

#include "chorus/executor.h"
#include "engine/engine.h"
#include "runtime/adapter_cache/adapter_store.h"

namespace chorus {

// What adapters of one rank take of an engine when they adapt every linear that it allows (lora_target_modules).
class AdapterSizing {
 public:
  explicit AdapterSizing(const Engine& engine) : AdapterSizing(engine.config(), engine.buildConfig()) {}
  AdapterSizing(const ModelConfig& config, const BuildConfig& build);

  // On every linear of every layer, with DoRA where the engine was built for it.
  AdapterSize fullAdapter(int32_t rank) const;
  // A rank-1 module of the widest kind on one layer: the unit of numHostModuleLayer and numDeviceModuleLayer.
  int64_t widestModuleElements() const { return widest_; }
  // Memory for so many elements of adapters on any modules, all of ranks in [from, to]. Packing pads A to 16 ranks, so
  // small ranks take more than their share: a level that holds 8 adapters of rank 64 holds 64 of rank 8 in such memory.
  int64_t bytesFor(int64_t elements, int32_t from, int32_t to) const;

 private:
  // A module that adapters may have, on every layer; in and out of each tensor-parallel rank.
  struct Module {
    int64_t in = 0, out = 0;
    std::vector<std::pair<int64_t, int64_t>> ranks;
  };
  int64_t bytesOf(const Module& module, int32_t rank) const;

  std::vector<Module> modules_;  // that one adapter can have together
  int32_t layers_;
  DType dtype_;
  bool dora_;
  int64_t widest_ = 0;
};

// free_bytes: what the machine has left once the engine is loaded. On the CPU the device level refers to what the host
// level holds, so unless asked for less it holds as much. Throws Error when a setting is out of range, or a level does
// not hold one adapter of maxAdapterSize (at most the engine's max_lora_rank) on every module.
AdapterCapacity adapterCapacity(const executor::PeftCacheConfig& config, const Engine& engine, int64_t free_bytes);
// The same of an engine that is not built yet.
AdapterCapacity adapterCapacity(const executor::PeftCacheConfig& config, const ModelConfig& model,
                                const BuildConfig& build, int64_t free_bytes);

}  // namespace chorus
