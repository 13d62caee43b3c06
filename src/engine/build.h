// Checkpoint directory -> engine directory: config.json with the limits, and one packed file per rank.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "engine/build_config.h"

namespace chorus {

// Packs every rank of the checkpoint. output_dir appears whole or not at all; an existing engine directory there is
// replaced. workers: packing threads, 0 for all cores. max_seq_len 0 takes the model's max_position_embeddings, and
// max_input_len is cut to it. Throws Error.
void buildEngine(const std::filesystem::path& checkpoint_dir, const std::filesystem::path& output_dir,
                 BuildConfig config, int workers = 0);

}  // namespace chorus
