// Builds an engine directory from a checkpoint directory: config.json with the limits, and one packed file per rank.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "engine/build_config.h"

namespace chorus {

// Packs every rank of the checkpoint.
//   - The architecture must support the checkpoint's config (architectureOf) and have the modules of
//     lora_target_modules.
//   - output_dir appears only when it is complete. An engine directory that exists there is replaced.
//   - workers: number of packing threads; 0: one per core.
//   - If max_seq_len is 0, it becomes the model's max_position_embeddings. max_input_len becomes at most max_seq_len.
// Throws Error.
void buildEngine(const std::filesystem::path& checkpoint_dir, const std::filesystem::path& output_dir,
                 BuildConfig config, int workers = 0);

// Makes output_dir an engine with the same weights and other limits. Its rank files are links to those of engine_dir,
// which must exist as long as output_dir is used. output_dir appears only when it is complete. Throws the same Errors
// for limits as buildEngine.
void linkEngine(const std::filesystem::path& engine_dir, const std::filesystem::path& output_dir, BuildConfig config);

}  // namespace chorus
