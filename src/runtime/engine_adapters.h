// Adapters of one engine: reads and checks sources against its model, prepares them for its ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "checkpoint/weight_table.h"
#include "engine/rank_group.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// All its work is done in slices, with rests between them while a step runs (base/pace.h). Thread-safe. The ranks must
// outlive it.
class EngineAdapters {
 public:
  // steps_run: whether a step runs now; called from any thread.
  EngineAdapters(const RankGroup& ranks, std::function<bool()> steps_run);

  // Reads and checks a PEFT directory. Throws Error that names what is wrong.
  std::shared_ptr<AdapterSource> peftSource(const std::filesystem::path& directory) const;
  // Reads, checks and prepares. A directory that was rewritten since it was registered is taken as it is now; the
  // parts' content_hash says what they are. Throws Error.
  std::shared_ptr<const PreparedAdapter> load(const AdapterSource& source) const;

 private:
  Adapter read(const AdapterSource& source) const;

  const RankGroup& ranks_;
  std::function<bool()> steps_run_;
  WeightTable table_;
};

// Bytes of a rank-1 module of the widest kind on one layer: PeftCacheConfig's unit of numHostModuleLayer and
// numDeviceModuleLayer.
int64_t widestModuleLayerBytes(const Engine& engine);

}  // namespace chorus
