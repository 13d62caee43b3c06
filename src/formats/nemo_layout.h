// Finds the config and the checkpoints among the files of a NeMo model or adapter. They are the members of a .nemo
// archive (tar_archive.h), or the files of the directory into which one was unpacked.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace chorus {

struct NemoLayout {
  std::string config;  // name of model_config.yaml
  // Names of the checkpoints of all ranks: rank (tp_rank, pp_rank) has the one at pp_rank * tp_size + tp_rank. One
  // rank: model_weights.ckpt. Ranks tp: mp_rank_00/model_weights.ckpt and so on. Ranks tp and pp:
  // tp_rank_00_pp_rank_000/model_weights.ckpt and so on.
  std::vector<std::string> checkpoints;
  int32_t tp_size = 1;
  int32_t pp_size = 1;
};

// names: relative, with "/" between components; the files may be in a directory of their own. source: for errors.
// Throws Error:
//   kCorrupt      no model_config.yaml or several, a rank's checkpoint is missing, checkpoints of several kinds
//   kNotFound     no checkpoint
//   kUnsupported  a distributed checkpoint (torch_dist or zarr), which the message names
NemoLayout nemoLayout(std::span<const std::string> names, std::string_view source);

// Parses model_config.yaml (yaml.h). Throws its Errors, and kCorrupt if it is no map or has other numbers of ranks
// than the layout has.
Json parseNemoConfig(std::string_view text, const NemoLayout& layout, std::string_view source);

}  // namespace chorus
