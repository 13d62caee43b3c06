// Converted adapters that are there before any request brings them (PeftCacheConfig's loraPrefetchDir).
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "runtime/adapter_cache/adapter_source.h"

namespace chorus {

// Reads DIR/TASK_ID/model.lora_weights.npy and model.lora_config.npy for every task id, which is a whole number; other
// names are skipped with a warning. Throws Error that names the directory which is missing, or whose files cannot be
// read. The sources keep the files' content in memory. element_bytes: of a packed weight.
std::map<uint64_t, std::shared_ptr<const AdapterSource>> prefetchedAdapters(const std::filesystem::path& dir,
                                                                            int64_t element_bytes);

}  // namespace chorus
