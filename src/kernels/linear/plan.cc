// Divides a linear call into tiles, blocks and tasks. The division depends on weights, cache sizes and the number of
// threads; results do not depend on the last two.
#include "kernels/linear/plan.h"

#include <algorithm>
#include <numeric>

namespace chorus {
namespace {

// Rows of a block: their slice of kInputBlock inputs stays in L2 while panels are read past it.
constexpr int64_t kBlockRows = 72;
constexpr int64_t kLine = 64;

void addRows(RowRange range, LinearPlan& plan) {
  const size_t first = plan.rows.size();
  plan.rows.resize(first + static_cast<size_t>(range.end - range.begin));
  std::iota(plan.rows.begin() + static_cast<ptrdiff_t>(first), plan.rows.end(), range.begin);
}

// Divides the group's rows in [begin, end) into adapter tiles of almost equal size.
void cutGroup(const RowGroup& group, int32_t begin, int32_t end, int max_rows, Isa isa, LinearPlan& plan) {
  const size_t first = plan.adapter_rows.size();
  for (const RowRange range : group.ranges) {
    for (int32_t r = std::max(begin, range.begin); r < std::min(end, range.end); ++r) plan.adapter_rows.push_back(r);
  }
  const auto rows = static_cast<int64_t>(plan.adapter_rows.size() - first);
  if (rows == 0) return;
  // LoRA terms use the kernels of their own type, whose tiles may be smaller.
  for (const LoraTerm& part : group.parts) {
    if (part.a.out > 0) max_rows = std::min(max_rows, panelKernels(isa, part.a.dtype).max_rows);
  }
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

// Adds the adapter tiles of a block's rows: those of the group that owns the weight or, for the base's weight, those of
// all groups without their own.
void cutAdapters(const LinearArgs& args, const WeightRows& weight, RowBlock& block, Isa isa, LinearPlan& plan) {
  const RowTile& last = plan.tiles[static_cast<size_t>(block.tile_end - 1)];
  const int32_t begin = plan.rows[static_cast<size_t>(plan.tiles[static_cast<size_t>(block.tile_begin)].first_row)];
  const int32_t end = plan.rows[static_cast<size_t>(last.first_row + last.rows - 1)] + 1;
  block.adapter_begin = static_cast<int32_t>(plan.adapter_tiles.size());
  for (const RowGroup& group : args.groups) {
    const bool here = weight.group == nullptr ? group.weight.data == nullptr : weight.group == &group;
    if (here && !group.parts.empty()) cutGroup(group, begin, end, weight.kernels->max_rows, isa, plan);
  }
  block.adapter_end = static_cast<int32_t>(plan.adapter_tiles.size());
}

// Divides the panels among tasks of (block, panels): long tasks, which stream well, and in the last block ever shorter
// ones, so that no thread waits long for another at the end.
void dealPanels(int threads, LinearPlan& plan) {
  int64_t all = 0;
  for (const RowBlock& block : plan.blocks) all += plan.weights[static_cast<size_t>(block.weight)].panels();
  const int64_t longest = std::clamp<int64_t>(all / (int64_t{8} * threads) / 8 * 8, 8, 64);
  // With several tiles, panels are prefetched while the tiles work on the panels before them. Very short tasks would
  // have little to prefetch.
  const int64_t shortest = plan.tiles.size() > 1 ? 4 : 2;
  plan.panel_tasks.clear();
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const int64_t panels = plan.weights[static_cast<size_t>(plan.blocks[b].weight)].panels();
    for (int64_t begin = 0; begin < panels;) {
      int64_t size = std::min(longest, panels - begin);
      if (b + 1 == plan.blocks.size()) {
        size = std::min(size, std::max(shortest, (panels - begin) / (4 * threads) / 2 * 2));
      }
      plan.panel_tasks.push_back({static_cast<int32_t>(b), begin, begin + size});
      begin += size;
    }
  }
}
}  // namespace

void assignRows(const LinearArgs& args, LinearPlan& plan) {
  plan.weights.clear();
  plan.rows.clear();
  plan.own_ranges.clear();
  const auto rowsSoFar = [&] { return static_cast<int32_t>(plan.rows.size()); };
  for (const RowGroup& group : args.groups) {
    if (group.weight.data == nullptr) continue;
    WeightRows own{.weight = group.weight, .group = &group, .first_row = rowsSoFar()};
    for (const RowRange range : group.ranges) {
      addRows(range, plan);
      plan.own_ranges.push_back(range);
    }
    own.num_rows = rowsSoFar() - own.first_row;
    if (own.num_rows > 0 && own.weight.out > 0) plan.weights.push_back(own);
  }
  if (args.weight.out == 0) return;
  WeightRows base{.weight = args.weight, .first_row = rowsSoFar()};
  std::sort(plan.own_ranges.begin(), plan.own_ranges.end(),
            [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
  int32_t next = 0;
  for (const RowRange& own : plan.own_ranges) {
    if (next < own.begin) addRows({next, own.begin}, plan);
    next = std::max(next, own.end);
  }
  addRows({next, static_cast<int32_t>(args.x.rows)}, plan);
  base.num_rows = rowsSoFar() - base.first_row;
  if (base.num_rows > 0) plan.weights.push_back(base);
}

void cutRows(const LinearArgs& args, Isa isa, int threads, LinearPlan& plan) {
  plan.tiles.clear();
  plan.blocks.clear();
  plan.adapter_rows.clear();
  plan.adapter_tiles.clear();
  plan.adapter_tasks.clear();
  plan.x_bytes = 0;
  plan.t_floats = 0;
  for (size_t w = 0; w < plan.weights.size(); ++w) {
    WeightRows& weight = plan.weights[w];
    weight.row_bytes = weight.kernels->rowBytes(weight.weight.in);
    weight.x = plan.x_bytes;
    if (weight.packs()) plan.x_bytes += (weight.num_rows * weight.row_bytes + kLine - 1) / kLine * kLine;
    const int64_t rows = weight.num_rows, max_rows = weight.kernels->max_rows;
    const int64_t tiles = (rows + max_rows - 1) / max_rows;
    const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
    const auto first = static_cast<int32_t>(plan.tiles.size());
    for (int64_t t = 0; t < tiles; ++t) {
      const auto begin = static_cast<int32_t>(rows * t / tiles), end = static_cast<int32_t>(rows * (t + 1) / tiles);
      plan.tiles.push_back({static_cast<int32_t>(w), weight.first_row + begin, end - begin});
    }
    for (int64_t b = 0; b < blocks; ++b) {
      RowBlock block{.weight = static_cast<int32_t>(w),
                     .tile_begin = first + static_cast<int32_t>(tiles * b / blocks),
                     .tile_end = first + static_cast<int32_t>(tiles * (b + 1) / blocks)};
      if (block.tile_begin == block.tile_end) continue;
      cutAdapters(args, weight, block, isa, plan);
      plan.blocks.push_back(block);
    }
  }
  dealPanels(threads, plan);
}

}  // namespace chorus
