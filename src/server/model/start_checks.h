// Checks that can be made at once, before anything is hashed, converted, built or loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "checkpoint/weight_table.h"
#include "chorus/executor_config.h"
#include "engine/build_config.h"
#include "server/serve_options.h"
#include "text/generation_defaults.h"
#include "text/text_codec.h"

namespace chorus::server {

// The configuration of the adapter cache for the options.
executor::PeftCacheConfig adapterCacheConfig(const ServeOptions& options);

// Throws the Errors of AdapterRoots about --lora_dir.
void checkLoraDirectories(const ServeOptions& options);

struct TokenizerDirectory {
  std::shared_ptr<const TextCodec> codec;
  GenerationDefaults defaults;
};
// Loads tokenizer, templates and generation defaults. Throws Error, also for an end token that is not below
// `vocabulary`.
TokenizerDirectory checkTokenizer(const std::filesystem::path& dir, int64_t vocabulary);

// Throws Error(kExhausted) if the model does not fit into the free memory (runtime/memory_needs.h).
void checkMemory(const ServeOptions& options, const WeightTable& table, const ModelConfig& config, BuildConfig build);

// Bytes on disk that preparing an engine takes: the checkpoint and, beside it, the engine.
uint64_t preparationBytes(const WeightTable& table, const ModelConfig& config);
// Throws Error(kExhausted) if the file system of `dir`, which must exist, has fewer free bytes.
void checkDiskSpace(const std::filesystem::path& dir, uint64_t bytes);

}  // namespace chorus::server
