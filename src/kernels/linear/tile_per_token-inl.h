// The kernels of int8 weights by AMX for inputs of which all of a row share a scale (PerTokenForm). A sum then takes
// all inputs of a row, like one of bfloat16, and the block product is that of tile_block-inl.h. Results have the same
// bits as those of the other kernels of fixed_point.h.
#pragma once

#include "kernels/linear/panel_layout.h"
#include "kernels/linear/tile_block-inl.h"
#include "kernels/linear/tile_quantised-inl.h"

namespace chorus::tiles::per_token {

using Digits = FixedDigits<1, kFixedUnit<true>>;
static_assert(sizeof(Digits) == kRowBytes);

template <class Unit>
struct Int8Elements {
  static constexpr int64_t kBytes = 1, kPanelHead = kTokenScaleBytes;
  static constexpr bool kTerms = false;
  template <int kSums, int kRows, int kWeights>
  static HWY_INLINE void multiply() {
    Unit::template multiplyInt8<kSums, kRows, kWeights>();
  }
  static HWY_INLINE void finish(const BlockArgs& args, const std::byte* rows, int packed_rows,
                                const std::byte* const (&panels)[2], std::byte* sums) {
    const TokenRun* runs = tokenRuns<Digits>(rows, packed_rows, args.inputs);
    for (int p = 0; p < 2; ++p) {
      alignas(64) float weights[kPanelCols];
      Unit::loadScales(panels[p], args.scale_dtype, weights);
      for (int r = 0; r < packed_rows; ++r) {
        std::byte* line =
            sums + (r / kRegisterRows * 2 + p) * kRegisterRows * kRowBytes + r % kRegisterRows * kRowBytes;
        Unit::scaleSums(runs[r].correction, runs[r].scale, weights, line);
      }
    }
  }
};

template <class Unit>
void blockProduct(const BlockArgs& args) {
  static constexpr Palette palette = tiles::paletteOf(kBlockTileRows);
  Unit::configure(args.tiles, &palette);
  BlockProduct<Unit, Int8Elements<Unit>>(args).run();
  Unit::finishWrites();
}

// Implements PanelKernels::block_scratch.
template <class Unit>
size_t blockScratch(int tiles, int64_t inputs, int64_t panels) {
  return tiles::blockScratch<Unit>(tiles, inputs / 2, panels);
}

template <class Unit, int kFirst, int... kRows>
constexpr PanelKernels makeKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  kernels.pack = &Unit::template packWholeRows<DType::kInt8>;
  setFixedLayout<PerTokenForm>(1, kernels);
  ((kernels.run[kFirst + kRows] = &quantised::panelProduct<Unit, DType::kInt8, 1, true, kFirst + kRows>), ...);
  ((kernels.passes[kFirst + kRows] = kPanelsInTurn / quantised::panelsAtOnce<1>(kFirst + kRows)), ...);
  kernels.scale_columns = &Unit::scaleColumns;
  kernels.block = &blockProduct<Unit>;
  kernels.block_inputs = kFixedUnit<true>;
  kernels.block_scratch = &blockScratch<Unit>;
  return kernels;
}

// kFirst: the number of rows of the smallest tile that the kernels multiply.
template <class Unit, int kFirst>
inline constexpr PanelKernels kKernels =
    makeKernels<Unit, kFirst>(std::make_integer_sequence<int, kTileRows + 1 - kFirst>());

}  // namespace chorus::tiles::per_token
