// KV groups: layers whose keys and values are kept for the same positions. All layers of a group share one block table.
//
// All groups take their blocks from one pool, and a block holds the keys and values of tokens_per_block positions for
// as many layers as the largest group has. So a block that one group gives back serves any other: short prompts, which
// need as many blocks in every group, and long ones, which need more in the groups without a window, share the same
// memory, and only the total has to be planned. A group with fewer layers leaves a part of its blocks unused. Therefore
// layers that keep the same positions are divided into several groups if others are fewer: Gemma 3 with 22 local and 4
// global layers has groups of 4 layers.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model_spec.h"

namespace chorus {

struct KvGroup {
  // A query reads the keys and values of the last `window` positions, its own included; 0: of all positions.
  int64_t window = 0;
  std::vector<int32_t> layers;  // ascending indices into ModelSpec::layers, not empty
};

// The groups of a whole model whose sequences have at most max_seq_len tokens; a window that holds them all counts as
// none. Groups without a window come first. The sizes of the groups are chosen such that a long sequence needs the
// least memory. There are at most 8 groups unless the layers have more than 8 different windows.
std::vector<KvGroup> kvGroups(const ModelSpec& spec, int64_t max_seq_len);

}  // namespace chorus
