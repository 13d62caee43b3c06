// Adapters of one engine: reads and checks sources against its model, prepares them for its ranks.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/weight_table.h"
#include "engine/rank_group.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Thread-safe. The ranks must outlive it.
class EngineAdapters {
 public:
  explicit EngineAdapters(const RankGroup& ranks);

  // Reads and checks a PEFT directory. Throws Error that names what is wrong.
  std::shared_ptr<const AdapterSource> peftSource(const std::filesystem::path& directory) const;
  // Reads, checks and prepares. Throws Error.
  std::shared_ptr<const PreparedAdapter> load(const AdapterSource& source) const;

 private:
  Adapter read(const AdapterSource& source) const;

  const RankGroup& ranks_;
  WeightTable table_;
};

}  // namespace chorus
