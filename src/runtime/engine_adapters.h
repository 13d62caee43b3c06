// Reads adapters, checks them against one engine's model and packs them for its ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/background_throttle.h"
#include "base/file_memory.h"
#include "checkpoint/weight_table.h"
#include "chorus/executor.h"
#include "engine/rank_group.h"
#include "lora/adapter_files.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// All work runs under a background throttle: in slices, with rests between them while a step runs
// (base/background_throttle.h). Thread-safe. `ranks` must outlive it.
class EngineAdapters {
 public:
  // throttle: returns the throttle's clock for the calling thread. Called for each registration and load, on any
  // thread. load_bytes: see PeftCacheConfig::getLoadMemory().
  EngineAdapters(const RankGroup& ranks, std::function<ThrottleClock()> throttle,
                 size_t load_bytes = std::numeric_limits<size_t>::max());

  // Reads and checks the adapter in the directory that `files` opens; with AdapterFiles::deferContent, only its
  // headers. Throws Error that names what is wrong, and anything that onContent throws.
  std::shared_ptr<const AdapterSource> fileSource(executor::AdapterFiles files) const;
  // Overload for a trusted path: a directory or a .nemo file.
  std::shared_ptr<const AdapterSource> fileSource(const std::filesystem::path& directory,
                                                  OnAdapterContent on_content = nullptr) const;
  // Reads and checks an adapter; see executor::Executor::inspectAdapter().
  executor::AdapterReport inspect(const executor::AdapterFiles& files) const;
  // Reads, checks and packs an adapter. If the directory was rewritten since its registration, its present content is
  // loaded; PreparedAdapter::content_hash identifies it. Throws Error, or AdapterUnsettled if the files changed just
  // now and may not be complete.
  std::shared_ptr<const PreparedAdapter> load(const AdapterSource& source) const;

 private:
  // AdapterSource's fields of the same names.
  struct Shapes {
    int64_t bytes = 0, elements = 0, droppable_bytes = 0;
    double norm_products = 0;  // multiplications of a load for DoRA's norms
    uint64_t load_bytes = 0;   // AdapterHeaders::loadBytes
  };
  // Checks headers against the model. Results are cached, because many adapters have equal headers.
  AdapterTarget targetOf(const Engine& engine, BackgroundThrottle& throttle) const;
  Shapes shapesOf(const AdapterHeaders& headers, const std::string& name, const AdapterTarget& target) const;
  std::shared_ptr<const PreparedAdapter> prepare(const AdapterSource& source) const;
  Adapter read(const AdapterSource& source, BackgroundThrottle& throttle) const;

  const RankGroup& ranks_;
  std::function<ThrottleClock()> throttle_;
  WeightTable table_;
  std::shared_ptr<FileMemory> file_memory_;
  mutable std::mutex shapes_mutex_;
  mutable std::map<std::string, Shapes> shapes_;  // of valid headers, by AdapterHeaders::digest
};

}  // namespace chorus
