// How one linear call is cut into tiles of rows, blocks of tiles and adapter tasks.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/linear/linear.h"

namespace chorus {

// Up to max_rows rows that share parts and do not straddle a block of base rows.
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

// Panels [begin, end) of the weight for one block of rows.
struct PanelTask {
  int64_t block = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// How one call is cut into tiles, blocks and tasks; kept between calls for its memory alone.
struct LinearPlan {
  std::vector<int32_t> tile_begin;    // first row of every base tile, and the end
  std::vector<int32_t> block_begin;   // first base tile of every block, and the end
  std::vector<int32_t> adapter_rows;  // rows of the adapter tiles, one after another
  std::vector<AdapterTile> adapter_tiles;
  std::vector<int32_t> block_adapters;  // first adapter tile of every block, and the end
  std::vector<AdapterTask> adapter_tasks;
  int64_t t_floats = 0;
  std::vector<PanelTask> panel_tasks;
};

// max_rows: of a base tile; part_rows: of an adapter tile.
void planLinear(const LinearArgs& args, int max_rows, int part_rows, LinearPlan& plan);

}  // namespace chorus
