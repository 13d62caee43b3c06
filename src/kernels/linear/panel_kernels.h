// The inner product of every linear and of attention: a few packed rows times panels of 16 columns.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/isa_table.h"

namespace chorus {

inline constexpr int kMaxTileRows = 16;
// Panels that several tiles take in turn while they stay in a cache.
inline constexpr int kPanelsInTurn = 2;

// y[r][c] = x[r] . panels[c], each element one chain of multiply-adds over ascending inputs in one
// accumulator (from zero, or from what stands in y), so that a result depends neither on the number of rows
// nor on a split of the inputs into several calls at multiples of 4. int8 and int4: one such chain for every group, of
// the integers alone; the groups' sums, times their scales, are added in ascending order by one more chain, and a
// split must fall between groups.
struct PanelArgs {
  const float* x = nullptr;  // packed tile, see packTile
  int64_t inputs = 0;
  const void* panels = nullptr;  // the first panel at the first input; nothing past the last input is read
  int64_t panel_stride = 0;      // bytes from a panel to the next
  int64_t input_stride = 0;      // float formats: bytes from an input (bfloat16: a pair) to the next within a panel
  int64_t group = 0;             // int8 and int4: inputs that share a scale (packedGroup)
  DType scale_dtype = DType::kFloat32;  // and the type of the scales
  float* const* y = nullptr;            // for every row, its first column
  int64_t cols = 0;                     // the last panel may be partial: no column past cols is touched
  bool accumulate = false;
  // Hints about memory. stream: these panels come from memory and, as the ones that follow them there, are
  // read once. next: lines to prefetch meanwhile, next_lines of 64 bytes for every 4 inputs of every pass
  // over the tile.
  bool stream = false;
  const void* next = nullptr;
  int next_lines = 0;
};
using PanelFunction = void (*)(const PanelArgs& args);

// The kernels of one weight format on one instruction set.
struct PanelKernels {
  int max_rows = 0;                          // of a tile
  int passes[kMaxTileRows + 1] = {};         // over a tile of so many rows for kPanelsInTurn panels
  PanelFunction run[kMaxTileRows + 1] = {};  // by the tile's number of rows, from 1
  // y = y + scale * v, then times magnitude if given; count elements.
  void (*apply_part)(const float* v, float scale, const float* magnitude, float* y, int64_t count) = nullptr;
};
IsaTable<const PanelKernels*> panelKernels(DType dtype);
inline const PanelKernels& panelKernels(Isa isa, DType dtype) { return *selectKernel(panelKernels(dtype), isa).kernel; }
// The formats that have panel kernels.
std::span<const DType> panelFormats();

// Bytes from an input (or pair) to the next in a packed weight of a float format.
inline int64_t packedInputStride(DType dtype) { return dtype == DType::kFloat16 ? 32 : 64; }

// Writes `rows` rows of `inputs` floats as a tile: [ceil(inputs / 4)][rows][4], the last quad padded with
// zeros. One row is its own tile when inputs is a multiple of 4. dst must not overlap the rows.
void packTile(const float* const* rows, int count, int64_t inputs, float* dst);
inline int64_t tileFloats(int rows, int64_t inputs) { return (inputs + 3) / 4 * 4 * rows; }

}  // namespace chorus
