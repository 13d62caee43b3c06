// The inner kernels of the linear: the products of a few packed rows and panels of 16 columns.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/cpu/tile_configuration.h"
#include "kernels/linear/line_queue.h"
#include "kernels/linear/panel_layout.h"

namespace chorus {

inline constexpr int kMaxTileRows = 32;
// Unit of PanelArgs::x_stride.
inline constexpr int64_t kStrideInputs = 32;
// Number of panels that several tiles take in turn while the panels stay in a cache.
inline constexpr int kPanelsInTurn = 2;

// y[r][c] = x[r] . panels[c], added to y[r][c] if `accumulate` is set.
//   - Float formats: each element is one chain of multiply-adds (or dot products of input pairs; AMX adds 32 inputs at
//     a time) over ascending inputs in one accumulator, which starts from zero or from y. The result depends neither on
//     the number of rows nor on a split of the inputs into several calls at multiples of 4 (AMX: 32).
//   - int8 and int4: there is one such chain for every group, of the integers alone, or an exact sum for every run of
//     fixed point (fixed_point.h). These sums, times their scales, are added in ascending order by one more chain. A
//     split must fall between groups and at a multiple of kFixedRun.
struct PanelArgs {
  TileConfiguration& tiles;  // of the task that calls the kernel
  const void* x = nullptr;   // packed tile, see PanelKernels::pack
  // Number of inputs that each call of `pack` took, at least kPanelCols. 0: each took a multiple of 32 (fixed point: of
  // kFixedRun), or all inputs.
  int64_t x_piece = 0;
  // Bytes from kStrideInputs inputs of x to the next ones. 0: x is a whole tile. Otherwise x is a range of rows of a
  // larger tile, which only kernels with PanelKernels::takes_part_of_tile support.
  int64_t x_stride = 0;
  int64_t inputs = 0;
  const void* panels = nullptr;  // the first panel at the first input; nothing past the last input is read
  int64_t panel_stride = 0;      // bytes from a panel to the next
  int64_t input_stride = 0;      // float formats: bytes from an input (bfloat16: a pair) to the next within a panel
  int64_t group = 0;             // int8 and int4: inputs that share a scale (packedGroup)
  DType scale_dtype = DType::kFloat32;  // int8 and int4: type of the scales
  float* const* y = nullptr;            // one pointer per row, to its first column
  // Only columns [skip, cols) are read and written, so that the first and the last panel may be partial; skip < 16.
  int64_t skip = 0;
  int64_t cols = 0;
  bool accumulate = false;
  // Hints for prefetching. stream: these panels are read from memory, once, and so are the panels that follow them
  // there. ahead: lines to prefetch, one step for every 4 inputs of each pass over the tile; may be null.
  bool stream = false;
  LineQueue* ahead = nullptr;
};
using PanelFunction = void (*)(const PanelArgs& args);

// Block products (PanelKernels::block): rows of a tile, and maximum rows of a block. The packed rows of a block must
// fit in L2 for one section of the inputs (tile_block-inl.h).
inline constexpr int kBlockTileRows = 32;
inline constexpr int kBlockRows = 256;
// The rows of a block's last tile are padded to a multiple of this number.
inline constexpr int kBlockPadding = 16;

// One LoRA term of some rows of a tile of a block product: y[r] += t[r] . b[c] for columns [col_begin, col_begin +
// cols) of the weight. The elements of b must be finite, because the zeros of the tile's other rows are multiplied by
// them.
struct BlockTerm {
  // Packed like a tile of BlockArgs::x, with `rank` inputs padded with zeros to a multiple of 32. Zero in the rows of
  // the tile that do not have this term.
  const void* t = nullptr;
  int64_t rank = 0;
  const void* b = nullptr;  // the first panel of B
  int64_t col_begin = 0;    // col_begin and cols are multiples of kPanelCols
  int64_t cols = 0;
};

// y[r][c] = x[r] . panels[c] for up to kBlockRows rows, plus the LoRA terms. Every element is the chain of PanelArgs,
// continued by the chains of its terms in their order. So it has the same bits as an element that PanelKernels::run
// computes.
struct BlockArgs {
  TileConfiguration& tiles;  // of the task that calls the kernel
  // Tiles of kBlockTileRows rows, each in the layout of PanelKernels::pack. The last tile has the remaining rows,
  // padded to a multiple of kBlockPadding; the values of the padding rows do not matter.
  const void* x = nullptr;
  int64_t tile_stride = 0;  // bytes from a tile to the next
  int rows = 0;
  int64_t inputs = 0;                   // a multiple of PanelKernels::block_inputs
  const void* panels = nullptr;         // the first panel
  int64_t panel_stride = 0;             // bytes from a panel to the next
  int64_t group = 0;                    // int8 and int4: inputs that share a scale (packedGroup)
  DType scale_dtype = DType::kFloat32;  // int8 and int4: type of the scales
  float* const* y = nullptr;            // one pointer per row, to the first panel's first column
  int64_t cols = 0;
  std::span<const std::span<const BlockTerm>> terms;  // one list per tile; empty: no terms
  int64_t first_col = 0;                              // column of the weight at which the first panel begins
  // Whether y is read again soon. Otherwise it is written with non-temporal stores where its rows are aligned to cache
  // lines.
  bool keep_y = false;
  const void* next = nullptr;  // the first panel of the next call, to prefetch; may be null
  void* scratch = nullptr;     // PanelKernels::block_scratch bytes, aligned to 64
};

// PanelKernels::pack for tiles of floats. A single row of floats is a tile without packing: nothing is read past its
// last input.
void packTile(const float* const* rows, int count, int64_t inputs, void* dst);

// The kernels of one weight format on one instruction set.
struct PanelKernels {
  int max_rows = 0;                   // maximum rows of a tile
  int passes[kMaxTileRows + 1] = {};  // passes over a tile for kPanelsInTurn panels, indexed by its number of rows
  // Packs `count` rows of `inputs` floats as a tile, [ceil(inputs / 4)][count][4] elements of element_bytes (bfloat16
  // by AMX: [ceil(inputs / 32)][count][32], where the last 32 may be fewer). The last four inputs are padded with
  // zeros. Elements are the floats themselves, or the floats rounded to the type that the products take. Fixed point:
  // see fixed_point.h. dst must not overlap the rows.
  void (*pack)(const float* const* rows, int count, int64_t inputs, void* dst) = &packTile;
  int element_bytes = sizeof(float);
  // A row is padded to a multiple of unit_inputs inputs. Every unit_inputs inputs have unit_extra bytes in addition to
  // their elements, and the row has row_extra bytes after all of them.
  int64_t unit_inputs = 4;
  int64_t unit_extra = 0;
  int64_t row_extra = 0;
  int64_t fixed_run = 0;  // fixed point: inputs of a row that share a scale; otherwise 0
  // Whether a call of `pack` or `run` takes all inputs of a row, because they share a scale.
  bool wholeRows() const { return fixed_run >= kWholeRow; }
  // Bytes of a row's inputs before a split at `inputs`.
  int64_t bytesBefore(int64_t inputs) const {
    return (inputs + unit_inputs - 1) / unit_inputs * (unit_inputs * element_bytes + unit_extra);
  }
  // Bytes of a row of `inputs` inputs in a tile.
  int64_t rowBytes(int64_t inputs) const { return bytesBefore(inputs) + row_extra; }
  PanelFunction run[kMaxTileRows + 1] = {};  // indexed by the tile's number of rows, from 1
  bool takes_part_of_tile = false;  // whether `run` supports PanelArgs::x_stride, for inputs that are a multiple of 32
  // Products of many rows; null: not supported. `inputs` must be a multiple of block_inputs.
  void (*block)(const BlockArgs& args) = nullptr;
  int64_t block_inputs = 1;
  int block_rows = kBlockTileRows + 1;  // minimum rows for which `block` is used, because it is faster than `run`
  // Bytes of BlockArgs::scratch for these numbers of tiles, inputs and panels.
  size_t (*block_scratch)(int tiles, int64_t inputs, int64_t panels) = nullptr;
  // Whether a single row is a tile without packing.
  bool takesRows() const { return pack == &packTile; }
  // y *= factors, count elements.
  void (*scale_columns)(const float* factors, float* y, int64_t count) = nullptr;
};
IsaTable<const PanelKernels*> panelKernels(const WeightFormat& format);
inline const PanelKernels& panelKernels(Isa isa, const WeightFormat& format) {
  return *selectKernel(panelKernels(format), isa).kernel;
}
// The formats that have panel kernels.
std::span<const DType> panelFormats();

// Bytes from an input (or pair) to the next in a packed weight of a float format.
inline int64_t packedInputStride(DType dtype) { return dtype == DType::kFloat16 ? 32 : 64; }

// Number of elements of a tile that is not in fixed point.
inline int64_t tileSize(int rows, int64_t inputs) { return (inputs + 3) / 4 * 4 * rows; }

}  // namespace chorus
