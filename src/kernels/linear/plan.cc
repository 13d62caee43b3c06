// Cuts a linear call into pieces. The cuts follow caches and threads only: no result depends on them.
#include <algorithm>

#include "kernels/linear/plan.h"

namespace chorus {
namespace {

// A block's slice of kInputBlock inputs stays in L2 while panels stream past it.
constexpr int64_t kBlockRows = 72;

void cutBase(int64_t rows, int max_rows, LinearPlan& plan) {
  const int64_t tiles = (rows + max_rows - 1) / max_rows;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  plan.tile_begin.clear();
  for (int64_t t = 0; t <= tiles; ++t) plan.tile_begin.push_back(static_cast<int32_t>(rows * t / tiles));
  plan.block_begin.clear();
  for (int64_t b = 0; b <= blocks; ++b) plan.block_begin.push_back(static_cast<int32_t>(tiles * b / blocks));
}

// The group's rows in [begin, end) as tiles of almost equal size.
void cutGroup(const RowGroup& group, int32_t begin, int32_t end, int max_rows, LinearPlan& plan) {
  const size_t first = plan.adapter_rows.size();
  for (const RowRange range : group.ranges) {
    for (int32_t r = std::max(begin, range.begin); r < std::min(end, range.end); ++r) plan.adapter_rows.push_back(r);
  }
  const auto rows = static_cast<int64_t>(plan.adapter_rows.size() - first);
  const int64_t tiles = (rows + max_rows - 1) / max_rows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t from = rows * t / tiles;
    AdapterTile tile;
    tile.group = &group;
    tile.first_row = static_cast<int32_t>(static_cast<int64_t>(first) + from);
    tile.rows = static_cast<int32_t>(rows * (t + 1) / tiles - from);
    tile.t = plan.t_floats;
    for (size_t p = 0; p < group.parts.size(); ++p) {
      const int64_t panels = (group.parts[p].a.out + kPanelCols - 1) / kPanelCols;
      for (int64_t panel = 0; panel < panels; ++panel) {
        plan.adapter_tasks.push_back(
            {static_cast<int32_t>(plan.adapter_tiles.size()), static_cast<int32_t>(p), panel, plan.t_floats});
      }
      plan.t_floats += panels * kPanelCols * tile.rows;
    }
    plan.adapter_tiles.push_back(tile);
  }
}
}  // namespace

void planLinear(const LinearArgs& args, int max_rows, int part_rows, LinearPlan& plan) {
  cutBase(args.x.rows, max_rows, plan);
  plan.adapter_rows.clear();
  plan.adapter_tiles.clear();
  plan.adapter_tasks.clear();
  plan.block_adapters.clear();
  plan.t_floats = 0;
  for (size_t b = 0; b + 1 < plan.block_begin.size(); ++b) {
    plan.block_adapters.push_back(static_cast<int32_t>(plan.adapter_tiles.size()));
    const int32_t begin = plan.tile_begin[static_cast<size_t>(plan.block_begin[b])];
    const int32_t end = plan.tile_begin[static_cast<size_t>(plan.block_begin[b + 1])];
    for (const RowGroup& group : args.groups) {
      if (!group.parts.empty()) cutGroup(group, begin, end, part_rows, plan);
    }
  }
  plan.block_adapters.push_back(static_cast<int32_t>(plan.adapter_tiles.size()));
}

}  // namespace chorus
