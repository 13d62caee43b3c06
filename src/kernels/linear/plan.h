// How one linear call is cut into tiles of rows, blocks of tiles and adapter tasks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_kernels.h"

namespace chorus {

// Rows that share a weight: the base's, or a group's own.
struct WeightRows {
  PackedWeight weight;
  const RowGroup* group = nullptr;  // whose weight it is; null: the base's
  const PanelKernels* kernels = nullptr;
  int32_t first_row = 0;  // index into LinearPlan::rows
  int32_t num_rows = 0;
  int64_t row_bytes = 0;  // of a packed row
  int64_t x = 0;          // where its packed rows begin

  int64_t panels() const { return (weight.out + kPanelCols - 1) / kPanelCols; }
  // One row of floats is its own tile.
  bool packs() const { return num_rows > 1 || !kernels->takesRows(); }
};

// Up to max_rows rows of one weight.
struct RowTile {
  int32_t weight = 0;     // index into LinearPlan::weights
  int32_t first_row = 0;  // index into LinearPlan::rows
  int32_t rows = 0;
};
// Up to max_rows rows that share parts and are of one block.
struct AdapterTile {
  const RowGroup* group = nullptr;
  int32_t first_row = 0;  // index into LinearPlan::adapter_rows
  int32_t rows = 0;
  int64_t t = 0;  // where the tile's products with A begin; room for floats, whatever the elements are
};
// One panel of one part's A times one tile.
struct AdapterTask {
  int32_t tile = 0;
  int32_t part = 0;
  int64_t panel = 0;
  int64_t t = 0;  // where the part's products begin, as above
};

// Tiles of one weight that take its panels in turn, and the adapter tiles of the same rows.
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

// How one call is cut into tiles, blocks and tasks; kept between calls for its memory alone.
struct LinearPlan {
  std::vector<WeightRows> weights;
  std::vector<int32_t> rows;  // of the weights, one after another
  std::vector<RowTile> tiles;
  std::vector<RowBlock> blocks;
  std::vector<int32_t> adapter_rows;  // of the adapter tiles, one after another
  std::vector<AdapterTile> adapter_tiles;
  std::vector<AdapterTask> adapter_tasks;
  std::vector<PanelTask> panel_tasks;
  std::vector<RowRange> own_ranges;  // of groups with a weight of their own
  int64_t x_bytes = 0;               // of all packed rows
  int64_t t_floats = 0;
};

// Which rows have which weight; the weights' kernels are for the caller to choose before it cuts the rows for so many
// threads.
void assignRows(const LinearArgs& args, LinearPlan& plan);
void cutRows(const LinearArgs& args, Isa isa, int threads, LinearPlan& plan);

}  // namespace chorus
