// Number of KV blocks that a sequence holds. A group without a window holds blocks for all tokens; a group with one,
// for the tokens in its window and those of the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace chorus {

struct KvDemand {
  int32_t tokens_per_block = 1;
  // One number for each KV group (models/kv_groups.h): how many positions a query reads, its own included; 0: all.
  std::vector<int32_t> windows = {0};

  int32_t numGroups() const { return static_cast<int32_t>(windows.size()); }
  // Blocks that `tokens` tokens fill in a group without a window.
  int32_t blocksFor(int32_t tokens) const { return (tokens + tokens_per_block - 1) / tokens_per_block; }
  // Blocks that end before all positions that the query at `position` reads.
  int32_t blocksBefore(int32_t group, int32_t position) const {
    const int32_t window = windows[static_cast<size_t>(group)];
    return window == 0 ? 0 : std::max(0, position - window + 1) / tokens_per_block;
  }
  // The most blocks that a sequence of `tokens` tokens holds in all groups together, if a step computes at most
  // step_tokens > 0 of its tokens.
  int64_t mostBlocks(int32_t tokens, int32_t step_tokens) const {
    int64_t blocks = 0;
    for (const int32_t window : windows) {
      // A step reads and writes window - 1 + step_tokens positions, which may begin at the end of a block.
      const int64_t positions = int64_t{window} - 1 + step_tokens;
      const int64_t most = (positions + tokens_per_block - 2) / tokens_per_block + 1;
      blocks += window == 0 ? blocksFor(tokens) : std::min<int64_t>(blocksFor(tokens), most);
    }
    return blocks;
  }
};

}  // namespace chorus
