// Divides one linear call into tiles of rows, blocks of tiles and adapter tasks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {

inline int64_t ceilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Rows that share a weight: the base's, or a group's own.
struct WeightRows {
  PackedWeight weight;
  const RowGroup* group = nullptr;  // whose weight it is; null: the base's
  const PanelKernels* kernels = nullptr;
  int32_t first_row = 0;  // index into LinearPlan::rows
  int32_t num_rows = 0;
  int64_t row_bytes = 0;  // bytes of a packed row
  int64_t x = 0;          // byte offset of its packed rows

  int64_t panels() const { return (weight.out + kPanelCols - 1) / kPanelCols; }
  // Whether the rows must be packed: a single row of floats is a tile without packing.
  bool packs() const { return num_rows > 1 || !kernels->takesRows(); }
  // Whether the rows are multiplied in blocks by PanelKernels::block.
  bool inBlocks() const {
    return kernels->block != nullptr && num_rows >= kernels->block_rows && weight.in > 0 &&
           weight.in % kernels->block_inputs == 0;
  }
};

// Up to max_rows rows of one weight.
struct RowTile {
  int32_t weight = 0;     // index into LinearPlan::weights
  int32_t first_row = 0;  // index into LinearPlan::rows
  int32_t rows = 0;
  // Rows of the packed tile, including padding. `owner` is the tile's weight.
  int packedRows(const WeightRows& owner) const {
    return owner.inBlocks() ? (rows + kBlockPadding - 1) / kBlockPadding * kBlockPadding : rows;
  }
};
// Up to max_rows rows of one block that share LoRA terms.
struct AdapterTile {
  const RowGroup* group = nullptr;
  int32_t first_row = 0;  // index into LinearPlan::adapter_rows
  int32_t rows = 0;
  int64_t t = 0;  // offset of the tile's products with A, counted in floats whatever the type of the elements
  // Index of the packed RowTile from which the products with A read rows [source_row, source_row + source_rows). These
  // contain all rows of this tile and may contain rows of other groups. -1: the tile's rows are packed separately.
  int32_t source = -1;
  int32_t source_row = 0;
  int32_t source_rows = 0;
  // Whether the products with B are BlockTerms of the source. Otherwise Call::addParts adds them to y.
  bool in_block = false;
};
// The product of one tile and one panel of A of one LoRA term.
struct AdapterTask {
  int32_t tile = 0;
  int32_t part = 0;
  int64_t panel = 0;
  int64_t t = 0;  // offset of the term's products, as in AdapterTile
};

// Tiles of one weight that are multiplied in turn by the same panels, and the adapter tiles of the same rows.
struct RowBlock {
  int32_t weight = 0;
  int32_t tile_begin = 0, tile_end = 0;
  int32_t adapter_begin = 0, adapter_end = 0;
};
// Panels [begin, end) of a block's weight.
struct PanelTask {
  int32_t block = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The division of one call into tiles, blocks and tasks. The object is kept between calls only to reuse its memory.
struct LinearPlan {
  std::vector<WeightRows> weights;
  std::vector<int32_t> rows;  // row numbers in x, grouped by weight
  std::vector<RowTile> tiles;
  std::vector<RowBlock> blocks;
  std::vector<int32_t> adapter_rows;  // row numbers in x, grouped by adapter tile
  std::vector<AdapterTile> adapter_tiles;
  std::vector<AdapterTask> adapter_tasks;
  std::vector<PanelTask> panel_tasks;
  std::vector<RowRange> own_ranges;    // rows of the groups that have their own weight
  std::vector<int32_t> place;          // index into `rows`, by row number in x
  std::vector<int32_t> group_of;       // index into the call's groups, by row number in x; -1: no group
  std::vector<BlockTerm> block_terms;  // grouped by RowTile
  std::vector<std::span<const BlockTerm>> terms_of_tile;  // by index of a RowTile; empty if no tile has BlockTerms
  int64_t x_bytes = 0;                                    // of all packed rows
  int64_t t_floats = 0;
  size_t block_scratch = 0;  // bytes of BlockArgs::scratch that the largest PanelTask needs
};

// assignRows finds the rows of every weight. The caller then sets the kernels of every weight, and cutRows divides the
// rows into tiles, blocks and tasks for `threads` threads. groups: those of the call, which must stay valid while the
// plan is used.
void assignRows(const LinearArgs& args, std::span<const RowGroup> groups, LinearPlan& plan);
void cutRows(const LinearArgs& args, std::span<const RowGroup> groups, Isa isa, int threads, LinearPlan& plan);
// Fills block_terms and terms_of_tile after cutRows. t: memory for the products with A of all adapter tiles,
// plan.t_floats floats. The terms point into it and into `plan`.
void assignBlockTerms(const std::byte* t, LinearPlan& plan);

}  // namespace chorus
