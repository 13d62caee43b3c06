// Checkpoint directory -> engine directory: config.json with the limits, and one packed file per rank.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "engine/build_config.h"

namespace chorus {

// Packs every rank of the checkpoint, whose config its architecture must compute (architectureOf) and which must have
// the modules of lora_target_modules. output_dir appears whole or not at all; an existing engine directory there is
// replaced. workers: packing threads, 0 for all cores. max_seq_len 0 takes the model's max_position_embeddings, and
// max_input_len is cut to it. Throws Error.
void buildEngine(const std::filesystem::path& checkpoint_dir, const std::filesystem::path& output_dir,
                 BuildConfig config, int workers = 0);

// Makes output_dir an engine of the same weights under other limits: its rank files are links to those of engine_dir,
// which must be there as long as it is used. Appears whole or not at all. Throws Error as buildEngine does for limits.
void linkEngine(const std::filesystem::path& engine_dir, const std::filesystem::path& output_dir, BuildConfig config);

}  // namespace chorus
