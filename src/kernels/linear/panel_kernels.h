// The inner kernels of the linear: the products of a few packed rows and panels of 16 columns.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/tensor.h"

namespace chorus {

inline constexpr int kMaxTileRows = 32;
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
  const void* x = nullptr;  // packed tile, see PanelKernels::pack
  // Number of inputs that each call of `pack` took, at least kPanelCols. 0: each took a multiple of 32 (fixed point: of
  // kFixedRun), or all inputs.
  int64_t x_piece = 0;
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
  // there. next: lines to prefetch during the products, next_lines of 64 bytes for every 4 inputs of every pass over
  // the tile.
  bool stream = false;
  const void* next = nullptr;
  int next_lines = 0;
};
using PanelFunction = void (*)(const PanelArgs& args);

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
  // their elements.
  int64_t unit_inputs = 4;
  int64_t unit_extra = 0;
  int64_t fixed_run = 0;  // fixed point: inputs of a row that share a scale; otherwise 0
  // Bytes of a row's first `inputs` inputs in a tile: all of them, or those before a split.
  int64_t rowBytes(int64_t inputs) const {
    return (inputs + unit_inputs - 1) / unit_inputs * (unit_inputs * element_bytes + unit_extra);
  }
  PanelFunction run[kMaxTileRows + 1] = {};  // indexed by the tile's number of rows, from 1
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
