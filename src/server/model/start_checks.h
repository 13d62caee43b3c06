// What can be known of a start at once, checked before anything is hashed, converted, built or loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "checkpoint/weight_table.h"
#include "chorus/executor_config.h"
#include "engine/build_config.h"
#include "server/model/generation_defaults.h"
#include "server/model/text_codec.h"
#include "server/serve_options.h"

namespace chorus::server {

// The adapter cache that the options ask for.
executor::PeftCacheConfig adapterCacheConfig(const ServeOptions& options);

// Throws the Errors of AdapterRoots about --lora_dir.
void checkLoraDirectories(const ServeOptions& options);

struct TokenizerDirectory {
  std::shared_ptr<const TextCodec> codec;
  GenerationDefaults defaults;
};
// Loads tokenizer, templates and generation defaults. Throws Error, also for an end token that a model of `vocabulary`
// tokens does not have.
TokenizerDirectory checkTokenizer(const std::filesystem::path& dir, int64_t vocabulary);

// Throws Error(kExhausted) when the model would not fit into the memory that is free (runtime/memory_needs.h).
void checkMemory(const ServeOptions& options, const WeightTable& table, const ModelConfig& config, BuildConfig build);

// Bytes that preparing an engine takes on disk: the checkpoint and the engine beside it.
uint64_t preparationBytes(const WeightTable& table, const ModelConfig& config);
// Throws Error(kExhausted) when the file system of a directory, which exists, has fewer free bytes.
void checkDiskSpace(const std::filesystem::path& dir, uint64_t bytes);

}  // namespace chorus::server
