// What an engine asks of an adapter, and what the adapter takes of its memory.
#pragma once

#include <cstdint>

#include "checkpoint/config.h"
#include "checkpoint/weight_table.h"
#include "engine/build_config.h"
#include "lora/adapter.h"

namespace chorus {

// Throws Error(kUnsupported) that names the build flag: the engine was built without --lora_plugin or, for a DoRA
// adapter, --dora_plugin, or a module is not among its --lora_target_modules.
void checkServable(const Adapter& adapter, const BuildConfig& build);

// A piece of packed memory starts on a cache line.
inline int64_t packedPiece(int64_t bytes) { return (bytes + 63) / 64 * 64; }
// Of A and B over all modules, rank x (in + out) each: what caches that are sized in adapters count by.
int64_t adapterElements(const Adapter& adapter);
// What one rank keeps of the adapter (cut for it, lora/shard.h) in memory: A, B and DoRA's factors of every module,
// packed in the engine's dtype.
int64_t packedAdapterBytes(const Adapter& rank_part, DType dtype);

}  // namespace chorus
