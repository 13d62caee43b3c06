// Reads converted adapters at start, before any request sends them (loraPrefetchDir of PeftCacheConfig).
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "runtime/adapter_cache/adapter_source.h"
#include "runtime/adapter_cache/tensor_source.h"

namespace chorus {

// Reads DIR/TASK_ID/model.lora_weights.npy and model.lora_config.npy for every task id, which is a whole number; other
// names are skipped with a warning. Throws Error that names the directory if it is missing or its files cannot be read.
// The sources keep the files' content in memory. row_bytes: see tensorSource().
std::map<uint64_t, std::shared_ptr<const AdapterSource>> prefetchedAdapters(const std::filesystem::path& dir,
                                                                            const PackedRowBytes& row_bytes);

}  // namespace chorus
