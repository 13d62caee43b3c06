// The inner product of every linear: a few packed rows times panels of 16 columns.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/isa_table.h"
#include "kernels/tensor.h"

namespace chorus {

inline constexpr int kMaxTileRows = 32;
// Panels that several tiles take in turn while they stay in a cache.
inline constexpr int kPanelsInTurn = 2;

// y[r][c] = x[r] . panels[c], each element one chain of multiply-adds (or dot products of input pairs) over ascending
// inputs in one accumulator (from zero, or from what stands in y; AMX adds 32 inputs at a time), so that a result
// depends neither on the number of rows nor on a split of the inputs into several calls at multiples of 4 (AMX: 32).
// int8 and int4: one such chain for every group, of the integers alone, or an exact sum for every run of fixed point
// (fixed_point.h); those sums, times their scales, are added in ascending order by one more chain, and a split must
// fall between groups and at a multiple of kFixedRun.
struct PanelArgs {
  const void* x = nullptr;  // packed tile, see PanelKernels::pack
  // Inputs that each call of `pack` took, kPanelCols at least; 0: multiples of 32 (fixed point: of
  // kFixedRun), or all of them.
  int64_t x_piece = 0;
  int64_t inputs = 0;
  const void* panels = nullptr;  // the first panel at the first input; nothing past the last input is read
  int64_t panel_stride = 0;      // bytes from a panel to the next
  int64_t input_stride = 0;      // float formats: bytes from an input (bfloat16: a pair) to the next within a panel
  int64_t group = 0;             // int8 and int4: inputs that share a scale (packedGroup)
  DType scale_dtype = DType::kFloat32;  // and the type of the scales
  float* const* y = nullptr;            // for every row, its first column
  // Columns that are touched: [skip, cols), so the first and the last panel may be partial; skip < 16.
  int64_t skip = 0;
  int64_t cols = 0;
  bool accumulate = false;
  // Hints about memory. stream: these panels come from memory and, as the ones that follow them there, are
  // read once. next: lines to prefetch meanwhile, next_lines of 64 bytes for every 4 inputs of every pass
  // over the tile.
  bool stream = false;
  const void* next = nullptr;
  int next_lines = 0;
};
using PanelFunction = void (*)(const PanelArgs& args);

// A tile of floats. One row is its own tile: nothing is read past its last input.
void packTile(const float* const* rows, int count, int64_t inputs, void* dst);

// The kernels of one weight format on one instruction set.
struct PanelKernels {
  int max_rows = 0;                   // of a tile
  int passes[kMaxTileRows + 1] = {};  // over a tile of so many rows for kPanelsInTurn panels
  // Writes `count` rows of `inputs` floats as a tile, [ceil(inputs / 4)][count][4] elements of element_bytes (bfloat16
  // by AMX: [ceil(inputs / 32)][count][32], the last of 32 cut), the last quad padded with zeros: floats as they are,
  // or rounded to what the products take. Fixed point: see fixed_point.h. dst must not overlap the rows.
  void (*pack)(const float* const* rows, int count, int64_t inputs, void* dst) = &packTile;
  int element_bytes = sizeof(float);
  // Inputs to a multiple of which a row is padded, and the bytes that stand beside their elements.
  int64_t unit_inputs = 4;
  int64_t unit_extra = 0;
  int64_t fixed_run = 0;  // inputs of a row that share a scale, where they are in fixed point
  // What a row's first inputs take of a tile, all of them or as many as stand before a split.
  int64_t rowBytes(int64_t inputs) const {
    return (inputs + unit_inputs - 1) / unit_inputs * (unit_inputs * element_bytes + unit_extra);
  }
  PanelFunction run[kMaxTileRows + 1] = {};  // by the tile's number of rows, from 1
  // One row of floats is its own tile.
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

// Elements of a tile that is not in fixed point.
inline int64_t tileSize(int rows, int64_t inputs) { return (inputs + 3) / 4 * 4 * rows; }

}  // namespace chorus
