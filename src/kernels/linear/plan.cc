// Divides a linear call into tiles, blocks and tasks. The division depends on weights, cache sizes and the number of
// threads; results do not depend on the last two.
#include "kernels/linear/plan.h"
#include "kernels/linear/panel_layout.h"

#include <algorithm>
#include <numeric>

namespace chorus {
namespace {

// Rows of a block whose tiles take panels in turn: their slice of kInputBlock inputs stays in L2 while panels are read
// past it.
constexpr int64_t kRowsInTurn = 72;
constexpr int64_t kLine = 64;

int64_t roundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Number of row blocks of a weight.
int64_t blocksOf(const WeightRows& weight, int threads) {
  if (!weight.inBlocks()) return ceilDivide(weight.num_rows, kRowsInTurn);
  // With enough rows, every thread gets the same number of blocks, and the packed rows of a block stay in its L2.
  constexpr int64_t kRowsOfThread = 192;
  const int64_t blocks = ceilDivide(weight.num_rows, kBlockRows);
  return weight.num_rows < threads * kRowsOfThread ? blocks : roundUp(blocks, threads);
}

void addRows(RowRange range, LinearPlan& plan) {
  const size_t first = plan.rows.size();
  plan.rows.resize(first + static_cast<size_t>(range.end - range.begin));
  std::iota(plan.rows.begin() + static_cast<ptrdiff_t>(first), plan.rows.end(), range.begin);
}

// Adds an adapter tile and the tasks of its products with A. The products of a term take term_floats(panels) floats of
// t, for the number of panels of its A.
template <typename F>
void addTasks(AdapterTile& tile, LinearPlan& plan, F term_floats) {
  tile.t = plan.t_floats;
  for (size_t p = 0; p < tile.group->parts.size(); ++p) {
    const int64_t panels = ceilDivide(tile.group->parts[p].a.out, kPanelCols);
    for (int64_t panel = 0; panel < panels; ++panel) {
      plan.adapter_tasks.push_back(
          {static_cast<int32_t>(plan.adapter_tiles.size()), static_cast<int32_t>(p), panel, plan.t_floats});
    }
    plan.t_floats += term_floats(panels);
  }
  plan.adapter_tiles.push_back(tile);
}

// Whether the products with A of all terms of the group can read the rows that are packed for `weight`.
bool takesPackedRows(const RowGroup& group, const WeightRows& weight, Isa isa) {
  if (!weight.kernels->takes_part_of_tile || weight.weight.in % kStrideInputs != 0) return false;
  return std::all_of(group.parts.begin(), group.parts.end(), [&](const LoraTerm& part) {
    return part.a.out == 0 || &panelKernels(isa, part.a.format()) == weight.kernels;
  });
}
// Whether the group's terms can be BlockTerms.
bool joinsBlocks(const RowGroup& group, const WeightRows& weight, Isa isa) {
  return takesPackedRows(group, weight, isa) &&
         std::all_of(group.parts.begin(), group.parts.end(), [](const LoraTerm& part) {
           return part.a.out > 0 && part.bias == nullptr && part.magnitude == nullptr &&
                  part.out_begin % kPanelCols == 0 && part.b.out % kPanelCols == 0;
         });
}

// Divides the group's rows in [begin, end) of x into adapter tiles of almost equal size.
void cutGroup(const RowGroup& group, int32_t first_row, int32_t begin, int32_t end, const WeightRows& weight,
              const RowBlock& block, Isa isa, LinearPlan& plan) {
  const size_t first = plan.adapter_rows.size();
  for (const RowRange range : group.ranges) {
    const RowRange within = rangeWithin(range, first_row + begin, end - begin);
    for (int32_t r = within.begin; r < within.end; ++r) plan.adapter_rows.push_back(begin + r);
  }
  const auto rows = static_cast<int64_t>(plan.adapter_rows.size() - first);
  if (rows == 0) return;
  // LoRA terms use the kernels of their own type, whose tiles may be smaller.
  int max_rows = weight.kernels->max_rows;
  for (const LoraTerm& part : group.parts) {
    if (part.a.out > 0) max_rows = std::min(max_rows, panelKernels(isa, part.a.format()).max_rows);
  }
  const int64_t tiles = ceilDivide(rows, max_rows);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t from = rows * t / tiles;
    AdapterTile tile;
    tile.group = &group;
    tile.first_row = static_cast<int32_t>(static_cast<int64_t>(first) + from);
    tile.rows = static_cast<int32_t>(rows * (t + 1) / tiles - from);
    // If the tile's rows are consecutive rows of one packed RowTile, the products with A read them there.
    const int32_t* tile_rows = plan.adapter_rows.data() + tile.first_row;
    const int32_t place = plan.place[static_cast<size_t>(tile_rows[0])];
    for (int32_t s = block.tile_begin; s < block.tile_end && takesPackedRows(group, weight, isa); ++s) {
      const RowTile& source = plan.tiles[static_cast<size_t>(s)];
      if (place < source.first_row || place + tile.rows > source.first_row + source.rows) continue;
      if (plan.place[static_cast<size_t>(tile_rows[tile.rows - 1])] != place + tile.rows - 1) break;
      tile.source = s;
      tile.source_row = place - source.first_row;
      tile.source_rows = tile.rows;
    }
    addTasks(tile, plan, [&](int64_t panels) { return panels * kPanelCols * tile.rows; });
  }
}

// Adds the adapter tiles of one RowTile: one for each group with LoRA terms that has rows in it.
void cutTileGroups(std::span<const RowGroup> groups, const WeightRows& weight, int32_t index, Isa isa,
                   LinearPlan& plan) {
  const RowTile& source = plan.tiles[static_cast<size_t>(index)];
  const int32_t* rows = plan.rows.data() + source.first_row;
  const auto groupOf = [&](int32_t r) { return plan.group_of[static_cast<size_t>(rows[r])]; };
  for (int32_t r = 0; r < source.rows; ++r) {
    const int32_t g = groupOf(r);
    bool seen = g < 0;
    for (int32_t before = 0; before < r && !seen; ++before) seen = groupOf(before) == g;
    if (seen) continue;
    const RowGroup& group = groups[static_cast<size_t>(g)];
    if (group.parts.empty() || !takesPackedRows(group, weight, isa)) continue;
    AdapterTile tile{.group = &group, .first_row = static_cast<int32_t>(plan.adapter_rows.size())};
    int32_t last = r;
    for (int32_t row = r; row < source.rows; ++row) {
      if (groupOf(row) != g) continue;
      plan.adapter_rows.push_back(rows[row]);
      ++tile.rows;
      last = row;
    }
    tile.in_block = joinsBlocks(group, weight, isa);
    tile.source = index;
    tile.source_row = r;
    tile.source_rows = last - r + 1;
    const int64_t packed = source.packedRows(weight);
    addTasks(tile, plan, [&](int64_t panels) {
      // A row of BlockTerm::t has 64 bytes for every two panels of A.
      return tile.in_block ? ceilDivide(panels, 2) * packed * kPanelCols : panels * kPanelCols * tile.rows;
    });
  }
}

// Adds the adapter tiles of a block's rows: those of the group that owns the weight or, for the base's weight, those of
// all groups without their own.
void cutAdapters(const LinearArgs& args, std::span<const RowGroup> groups, const WeightRows& weight, RowBlock& block,
                 Isa isa, LinearPlan& plan) {
  block.adapter_begin = static_cast<int32_t>(plan.adapter_tiles.size());
  // BlockTerms belong to one RowTile, and only kernels with takes_part_of_tile support them. For the other kernels,
  // cutGroup makes tiles that the kernels of the terms can take.
  const bool by_tile = weight.inBlocks() && weight.kernels->takes_part_of_tile;
  for (int32_t t = block.tile_begin; by_tile && t < block.tile_end && !groups.empty(); ++t) {
    cutTileGroups(groups, weight, t, isa, plan);
  }
  const RowTile& last = plan.tiles[static_cast<size_t>(block.tile_end - 1)];
  const int32_t begin = plan.rows[static_cast<size_t>(plan.tiles[static_cast<size_t>(block.tile_begin)].first_row)];
  const int32_t end = plan.rows[static_cast<size_t>(last.first_row + last.rows - 1)] + 1;
  // A group's own weight has no rows of other groups; there may be as many such groups as experts.
  const auto candidates = weight.group == nullptr ? groups : std::span(weight.group, 1);
  for (const RowGroup& group : candidates) {
    const bool here = weight.group != nullptr || group.weight.data == nullptr;
    if (!here || group.parts.empty() || (by_tile && takesPackedRows(group, weight, isa))) continue;
    cutGroup(group, args.first_row, begin, end, weight, block, isa, plan);
  }
  block.adapter_end = static_cast<int32_t>(plan.adapter_tiles.size());
}

// Fills `place` and `group_of`.
void indexRows(const LinearArgs& args, std::span<const RowGroup> groups, LinearPlan& plan) {
  plan.place.assign(static_cast<size_t>(args.x.rows), -1);
  for (size_t i = 0; i < plan.rows.size(); ++i) plan.place[static_cast<size_t>(plan.rows[i])] = static_cast<int32_t>(i);
  plan.group_of.assign(static_cast<size_t>(args.x.rows), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const RowRange range : groups[g].ranges) {
      const RowRange rows = rangeWithin(range, args.first_row, args.x.rows);
      std::fill(plan.group_of.begin() + rows.begin, plan.group_of.begin() + rows.end, static_cast<int32_t>(g));
    }
  }
}

// Divides the panels of every block into PanelTasks. Tasks for PanelKernels::run are short; when a thread takes
// several consecutive ones, it joins them (Call::multiplyTasks). Tasks for PanelKernels::block are long, because each
// of them loads the packed rows of its block again.
void dealPanels(int threads, LinearPlan& plan) {
  plan.panel_tasks.clear();
  plan.block_scratch = 0;
  for (size_t b = 0; b < plan.blocks.size(); ++b) {
    const WeightRows& weight = plan.weights[static_cast<size_t>(plan.blocks[b].weight)];
    const int64_t panels = weight.panels();
    // With several tiles, panels are prefetched while the tiles work on the panels before them. Very short tasks would
    // have little to prefetch.
    int64_t size = plan.tiles.size() > 1 ? 4 : 2;
    if (weight.inBlocks()) {
      constexpr int64_t kMinPanels = 16;
      const int64_t tasks_of_block = ceilDivide(int64_t{2} * threads, std::ssize(plan.blocks));
      size = std::max(kMinPanels, roundUp(ceilDivide(panels, tasks_of_block), 2));
      const int tiles = plan.blocks[b].tile_end - plan.blocks[b].tile_begin;
      plan.block_scratch =
          std::max(plan.block_scratch, weight.kernels->block_scratch(tiles, weight.weight.in, std::min(size, panels)));
    }
    for (int64_t begin = 0; begin < panels; begin += size) {
      plan.panel_tasks.push_back({static_cast<int32_t>(b), begin, std::min(panels, begin + size)});
    }
  }
}

}  // namespace

void assignRows(const LinearArgs& args, std::span<const RowGroup> groups, LinearPlan& plan) {
  plan.weights.clear();
  plan.rows.clear();
  plan.own_ranges.clear();
  const auto rowsSoFar = [&] { return static_cast<int32_t>(plan.rows.size()); };
  for (const RowGroup& group : groups) {
    if (group.weight.data == nullptr) continue;
    WeightRows own{.weight = group.weight, .group = &group, .first_row = rowsSoFar()};
    for (const RowRange range : group.ranges) {
      const RowRange rows = rangeWithin(range, args.first_row, args.x.rows);
      if (rows.begin == rows.end) continue;
      addRows(rows, plan);
      plan.own_ranges.push_back(rows);
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

void cutRows(const LinearArgs& args, std::span<const RowGroup> groups, Isa isa, int threads, LinearPlan& plan) {
  plan.tiles.clear();
  plan.blocks.clear();
  plan.adapter_rows.clear();
  plan.adapter_tiles.clear();
  plan.adapter_tasks.clear();
  plan.x_bytes = 0;
  plan.t_floats = 0;
  if (!groups.empty()) indexRows(args, groups, plan);
  for (size_t w = 0; w < plan.weights.size(); ++w) {
    WeightRows& weight = plan.weights[w];
    weight.row_bytes = weight.kernels->rowBytes(weight.weight.in);
    weight.x = plan.x_bytes;
    const bool in_blocks = weight.inBlocks();
    const int64_t rows = weight.num_rows, packed_rows = in_blocks ? roundUp(rows, kBlockPadding) : rows;
    if (weight.packs()) plan.x_bytes += roundUp(packed_rows * weight.row_bytes, kLine);
    const int64_t max_rows = in_blocks ? kBlockTileRows : weight.kernels->max_rows;
    const int64_t tiles = (rows + max_rows - 1) / max_rows;
    const int64_t blocks = blocksOf(weight, threads);
    const auto first = static_cast<int32_t>(plan.tiles.size());
    for (int64_t t = 0; t < tiles; ++t) {
      // Tiles have almost equal sizes. For PanelKernels::block, all tiles but the last are full.
      const auto begin = static_cast<int32_t>(in_blocks ? t * max_rows : rows * t / tiles);
      const auto end = static_cast<int32_t>(in_blocks ? std::min(rows, (t + 1) * max_rows) : rows * (t + 1) / tiles);
      plan.tiles.push_back({static_cast<int32_t>(w), weight.first_row + begin, end - begin});
    }
    for (int64_t b = 0; b < blocks; ++b) {
      RowBlock block{.weight = static_cast<int32_t>(w),
                     .tile_begin = first + static_cast<int32_t>(tiles * b / blocks),
                     .tile_end = first + static_cast<int32_t>(tiles * (b + 1) / blocks)};
      if (block.tile_begin == block.tile_end) continue;
      cutAdapters(args, groups, weight, block, isa, plan);
      plan.blocks.push_back(block);
    }
  }
  dealPanels(threads, plan);
}

void assignBlockTerms(const std::byte* t, LinearPlan& plan) {
  plan.block_terms.clear();
  plan.terms_of_tile.clear();
  // Counts the terms first: terms_of_tile has spans of block_terms, which must therefore not be reallocated.
  size_t count = 0;
  for (const AdapterTile& tile : plan.adapter_tiles) count += tile.in_block ? tile.group->parts.size() : 0;
  if (count == 0) return;
  plan.block_terms.reserve(count);
  plan.terms_of_tile.resize(plan.tiles.size());
  for (size_t first = 0, next = 0; first < plan.adapter_tiles.size(); first = next) {
    const size_t begin = plan.block_terms.size();
    const int32_t source = plan.adapter_tiles[first].source;
    for (next = first; next < plan.adapter_tiles.size() && plan.adapter_tiles[next].source == source; ++next) {
      const AdapterTile& tile = plan.adapter_tiles[next];
      if (!tile.in_block) continue;
      const RowTile& row_tile = plan.tiles[static_cast<size_t>(source)];
      const int packed = row_tile.packedRows(plan.weights[static_cast<size_t>(row_tile.weight)]);
      const std::byte* at = t + tile.t * static_cast<int64_t>(sizeof(float));
      for (const LoraTerm& part : tile.group->parts) {
        plan.block_terms.push_back({at, part.b.in, part.b.data, part.out_begin, part.b.out});
        at += ceilDivide(part.a.out, 2 * kPanelCols) * packed * kLine;
      }
    }
    if (source >= 0 && plan.block_terms.size() > begin) {
      plan.terms_of_tile[static_cast<size_t>(source)] = std::span(plan.block_terms).subspan(begin);
    }
  }
}

}  // namespace chorus
