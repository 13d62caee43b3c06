// Adapters of one engine: reads and checks sources against its model, prepares them for its ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/pace.h"
#include "checkpoint/weight_table.h"
#include "chorus/executor.h"
#include "engine/rank_group.h"
#include "lora/source_peft.h"
#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// All its work is done in slices, with rests between them while a step runs (base/pace.h). Thread-safe. The ranks must
// outlive it.
class EngineAdapters {
 public:
  // pace: the clock of the thread that calls it, for each load; called from any thread.
  EngineAdapters(const RankGroup& ranks, std::function<PaceClock()> pace);

  // Reads and checks a PEFT directory, which `files` opens, or its headers alone (AdapterFiles::deferContent). Throws
  // Error that names what is wrong, and what onContent throws.
  std::shared_ptr<const AdapterSource> peftSource(executor::AdapterFiles files) const;
  // The same for a path that is trusted.
  std::shared_ptr<const AdapterSource> peftSource(const std::filesystem::path& directory,
                                                  OnAdapterContent on_content = nullptr) const;
  // Reads, checks and prepares. A directory that was rewritten since it was registered is taken as it is now; the
  // parts' content_hash says what they are. Throws Error, and AdapterUnsettled while it is being rewritten.
  std::shared_ptr<const PreparedAdapter> load(const AdapterSource& source) const;

 private:
  // What an adapter takes; at_most: values that were not read may be the base's own and then take nothing.
  struct Shapes {
    int64_t bytes = 0, elements = 0;
    bool at_most = false;
  };
  // Checks headers against the model. Many adapters have the same ones, which are checked once.
  Shapes shapesOf(const PeftHeaders& headers, const std::string& name, const AdapterTarget& target) const;
  std::shared_ptr<const PreparedAdapter> prepare(const AdapterSource& source) const;
  // stamps: of the files that were read, if any were.
  Adapter read(const AdapterSource& source, std::vector<FileStamp>& stamps) const;

  const RankGroup& ranks_;
  std::function<PaceClock()> pace_;
  WeightTable table_;
  mutable std::mutex shapes_mutex_;
  mutable std::map<std::string, Shapes> shapes_;  // of headers that are in order, by PeftHeaders::digest
};

}  // namespace chorus
