// Adapters of one engine: reads and checks sources against its model, packs them for its session.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/weight_table.h"
#include "engine/session.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Thread-safe. The session must outlive it.
class EngineAdapters {
 public:
  explicit EngineAdapters(const Session& session);

  // Reads and checks a PEFT directory. Throws Error that names what is wrong.
  std::shared_ptr<const AdapterSource> peftSource(const std::filesystem::path& directory) const;
  // Reads, checks and packs. Throws Error.
  std::shared_ptr<const AdapterParts> load(const AdapterSource& source) const;

 private:
  Adapter read(const AdapterSource& source) const;

  const Session& session_;
  WeightTable table_;
};

// Bytes of a rank-1 module of the widest kind on one layer: PeftCacheConfig's unit of numHostModuleLayer and
// numDeviceModuleLayer.
int64_t widestModuleLayerBytes(const Engine& engine);

}  // namespace chorus
