// The product of a block of rows by AMX (PanelKernels::block) with int8 and int4 weights. Like tile_quantised-inl.h, it
// is a template of Unit, and its results have the same bits as those of the other kernels of fixed_point.h.
//
// Order of the loops:
//   section: a range of inputs for which the packed rows of the block stay in L2
//     pair of panels
//       chunk: a range of inputs for which the pair's weights are unpacked into L1, as signed bytes
//         tile of 16 rows, or of 32 if inputs have one digit
//           run of inputs that share a scale
// The weights are signed here, so the sums of a run need no correction (FixedRuns::correction). The float operations
// on these sums are placed between the products of the next run, so that the processor computes both at the same time.
#pragma once

#include "kernels/linear/panel_layout.h"
#include "kernels/linear/tile_block-inl.h"
#include "kernels/linear/tile_quantised-inl.h"

namespace chorus::tiles::quantised {

inline constexpr int64_t kMostChunkInputs = 512;
// Maximum inputs of a chunk of a block with this number of rows. With few rows, unpacking takes a larger share of the
// time, and shorter chunks are faster because they leave more of L1 to other data.
constexpr int64_t chunkInputs(int rows) { return rows <= 4 * kRegisterRows ? kMostChunkInputs / 2 : kMostChunkInputs; }

// The two registers of rows hold the two digits of 16 rows, or the only digit of 32 rows.
template <class Unit, DType kType, class Form>
class BlockProduct {
 public:
  HWY_INLINE explicit BlockProduct(const BlockArgs& args)
      : args_(args),
        tiles_((args.rows + kTileOfBlock - 1) / kTileOfBlock),
        units_(args.inputs / kFixedRun),
        chunks_((args.inputs + chunkInputs(args.rows) - 1) / chunkInputs(args.rows)),
        sections_(sectionsOf(args.inputs)),
        scale_bytes_(kPanelCols * static_cast<int64_t>(dtypeSize(args.scale_dtype))) {}

  HWY_INLINE void run() {
    const int64_t pairs = (args_.cols + 2 * kPanelCols - 1) / (2 * kPanelCols);
    loadRows(rows(0, 0));
    for (int64_t section = 0; section < sections_; ++section) {
      for (int64_t pair = 0; pair < pairs; ++pair) {
        PairPrefetch ahead = prefetchAfter(section, pair, pairs);
        float* totals = totalsOf(pair);
        for (int64_t chunk = firstChunk(section); chunk < firstChunk(section + 1); ++chunk) {
          const bool repeats = chunk + 1 == firstChunk(section + 1) && pair + 1 < pairs;
          const int64_t next = repeats ? firstChunk(section) : chunk + 1 < chunks_ ? chunk + 1 : chunk;
          multiplyChunk(pair, chunk, next, totals, ahead);
        }
      }
    }
    finish<0>();
    finish<1>();
    if constexpr (kSteps > 1) {
      finish<2>();
      finish<3>();
    }
    if (pending_.last) write();
  }

 private:
  using Digits = FixedDigits<Form::kDigits>;
  static constexpr int kDigits = Form::kDigits, kRun = Form::kRun;
  static constexpr int kTileOfBlock = 2 * kRegisterRows / kDigits;  // rows
  static constexpr int64_t kLaneInputs = kType == DType::kInt4 ? 8 : 4;
  static constexpr int64_t kStep = productInputs(kRun);
  static constexpr int kSteps = kRun / kStep;
  static constexpr int64_t kStepBytes = kStep / 4 * kRowBytes;  // of one panel
  static constexpr int64_t kTotals = kTileOfBlock * 2 * kPanelCols;
  static constexpr int64_t kScales = 2 * kPanelCols;  // of two panels
  static constexpr int64_t kUnitRuns = kFixedRun / kRun;

  int64_t begin(int64_t chunk) const { return units_ * chunk / chunks_; }  // in units of kFixedRun inputs
  int64_t firstChunk(int64_t section) const { return chunks_ * section / sections_; }
  float* totalsOf(int64_t pair) const {
    return static_cast<float*>(args_.scratch) + (sections_ > 1 ? pair * tiles_ * kTotals : 0);
  }
  bool hasSecond(int64_t pair) const { return (2 * pair + 1) * kPanelCols < args_.cols; }
  const std::byte* panel(int64_t index) const {
    return static_cast<const std::byte*>(args_.panels) + index * args_.panel_stride;
  }
  // Byte offsets within a panel: of the scales of `input`'s group, and of the lane of `input`.
  int64_t scalesAt(int64_t input) const {
    return input / args_.group * (scale_bytes_ + args_.group / kLaneInputs * kRowBytes);
  }
  int64_t lanesAt(int64_t input) const {
    return scalesAt(input) + scale_bytes_ + input % args_.group / kLaneInputs * kRowBytes;
  }

  // The prefetch during a pair: of the next pair in the section, or of the first one in the next section, or of
  // BlockArgs::next.
  PairPrefetch prefetchAfter(int64_t section, int64_t pair, int64_t pairs) const {
    const bool last = pair + 1 == pairs, end = last && section + 1 == sections_;
    const int64_t next = end ? 0 : last ? section + 1 : section;
    const int64_t from = scalesAt(begin(firstChunk(next)) * kFixedRun);
    const int64_t to = lanesAt(begin(firstChunk(next + 1)) * kFixedRun);
    const int64_t units = begin(firstChunk(section + 1)) - begin(firstChunk(section));
    const std::byte* first = end ? static_cast<const std::byte*>(args_.next) : panel(last ? 0 : 2 * pair + 2);
    const bool second = end || last || hasSecond(pair + 1);
    return PairPrefetch(first == nullptr ? nullptr : first + from, second ? args_.panel_stride : 0, to - from, tiles_,
                        units * kUnitRuns * tiles_);
  }

  // The unpacked weights of a pair of panels for one chunk.
  struct alignas(64) Chunk {
    std::byte weights[kMostChunkInputs / 4 * 2 * kRowBytes];  // [step][panel][kStepBytes], contents of registers
    // [run][panel][column] of this chunk (index parity_) and of the chunk before, whose last run is finished during
    // this one.
    float scales[2][kMostChunkInputs / kRun * kScales];
  };

  HWY_INLINE void unpack(int64_t pair, int64_t chunk) {
    const int64_t from = begin(chunk) * kFixedRun, to = begin(chunk + 1) * kFixedRun;
    for (int p = 0; p < 2; ++p) {
      const std::byte* data = panel(2 * pair + (hasSecond(pair) ? p : 0));
      const std::byte *scales = data + scalesAt(from), *at = data + lanesAt(from);
      int64_t left = args_.group - from % args_.group;
      std::byte* to_step = chunk_.weights + p * kStepBytes;
      float* to_scales = chunk_.scales[parity_] + p * kPanelCols;
      for (int64_t i = from; i < to; i += kRun, to_scales += kScales, left -= kRun) {
        if (left == 0) {
          scales = at;
          at += scale_bytes_;
          left = args_.group;
        }
        Unit::loadScales(scales, args_.scale_dtype, to_scales);
        for (int64_t k = 0; k < kRun; k += kStep, to_step += 2 * kStepBytes) {
#pragma GCC unroll 4
          for (int64_t line = 0; line < kStepBytes; at += kRowBytes) {
            if constexpr (kType == DType::kInt4) {
              Unit::signedNibbles(at, to_step + line, to_step + line + kRowBytes);
              line += 2 * kRowBytes;
            } else {
              Unit::signedBytes(at, to_step + line);
              line += kRowBytes;
            }
          }
        }
      }
    }
  }

  // The addresses from which the two registers of rows are loaded. The digits of one row and of the next are
  // sizeof(Digits) bytes apart.
  struct Rows {
    const int8_t* first;
    int64_t second;  // offset of the second register's rows
    HWY_INLINE Rows at(int64_t bytes) const { return {first + bytes, second}; }
  };
  // The packed tile that a tile is a part of: rows that are packed together. Every kFixedRun inputs of it are the
  // digits of its rows, and then their FixedRuns.
  struct PackedTile {
    const int8_t* data;
    int64_t rows;    // kBlockTileRows; kBlockPadding in the last one if it has no more rows
    int64_t before;  // its rows before those of the tile
    int64_t stride() const { return rows * kFixedBytes<Digits>; }  // bytes of kFixedRun inputs
  };
  PackedTile packedTile(int tile) const {
    const int first = tile * kTileOfBlock, packed = first / kBlockTileRows,
              in_packed = args_.rows - packed * kBlockTileRows;
    return {static_cast<const int8_t*>(args_.x) + packed * args_.tile_stride,
            in_packed > kBlockPadding ? kBlockTileRows : kBlockPadding, first % kBlockTileRows};
  }
  // The rows of a tile at the start of a chunk, and their FixedRuns.
  Rows rows(int tile, int64_t chunk) const {
    const PackedTile packed = packedTile(tile);
    const auto* digits = reinterpret_cast<const Digits*>(packed.data + begin(chunk) * packed.stride()) + packed.before;
    // Without rows for the second register, it takes the first's, and its sums are not used.
    const auto* second = kDigits > 1 ? digits->digit[kDigits - 1] : digits[packed.rows - kRegisterRows].digit[0];
    return {digits->digit[0], second - digits->digit[0]};
  }
  const FixedRuns* runs(int tile, int64_t chunk) const {
    const PackedTile packed = packedTile(tile);
    const auto* unit = reinterpret_cast<const Digits*>(packed.data + begin(chunk) * packed.stride());
    return reinterpret_cast<const FixedRuns*>(unit + packed.rows) + packed.before;
  }

  // Multiplies all tiles by one chunk. next: the chunk that is multiplied after it.
  HWY_INLINE void multiplyChunk(int64_t pair, int64_t chunk, int64_t next, float* totals, PairPrefetch& ahead) {
    parity_ ^= 1;
    unpack(pair, chunk);
    const int64_t units = begin(chunk + 1) - begin(chunk);
    const bool last = chunk + 1 == chunks_;
    for (int tile = 0; tile < tiles_; ++tile, totals += kTotals) {
      const int64_t stride = packedTile(tile).stride();
      const int rows_of_tile = std::min(kTileOfBlock, static_cast<int>(packedTile(tile).rows));
      const Rows next_tile = tile + 1 < tiles_ ? rows(tile + 1, chunk) : rows(0, next);
      Rows now = rows(tile, chunk);
      const auto* of_rows = reinterpret_cast<const std::byte*>(runs(tile, chunk));
      const std::byte* w = chunk_.weights;
      const float* scales = chunk_.scales[parity_];
      for (int64_t unit = 0; unit < units; ++unit, now = now.at(stride), of_rows += stride) {
        const Rows next_unit = unit + 1 < units ? now.at(stride) : next_tile;
#pragma GCC unroll 4
        for (int n = 0; n < kUnitRuns; ++n, scales += kScales) {
          ahead.portion();
          multiplyRun(now.at(n * kRun), n + 1 < kUnitRuns ? now.at((n + 1) * kRun) : next_unit, w);
          w += kSteps * 2 * kStepBytes;
          storeSums(sums_[flip_].bytes);
          pending_ = {totals,
                      reinterpret_cast<const FixedRuns*>(of_rows)->scale + n,
                      scales,
                      sums_[flip_].bytes,
                      static_cast<int>(pair),
                      tile,
                      rows_of_tile,
                      chunk == 0 && unit == 0 && n == 0,
                      last && unit + 1 == units && n + 1 == kUnitRuns};
          flip_ ^= 1;
        }
      }
    }
  }

  // The accumulators of a register of rows and a panel.
  static constexpr int sumsOf(int rows, int panel) { return 2 * rows + panel; }

  template <int kRows>
  static HWY_INLINE void zeroSums() {
    Unit::template zero<sumsOf(kRows, 0)>();
    Unit::template zero<sumsOf(kRows, 1)>();
  }
  // Loads both registers of rows.
  static HWY_INLINE void loadRows(const Rows& rows) {
    Unit::template loadOnce<rowsAt(0)>(rows.first, sizeof(Digits));
    Unit::template loadOnce<rowsAt(1)>(rows.first + rows.second, sizeof(Digits));
  }
  // Multiplies a run, and finishes the pending run between the products. The rows of the run's first step are in the
  // registers already. Those of the next run are loaded here, because the stores of storeSums would delay loads that
  // come after them.
  HWY_INLINE void multiplyRun(const Rows& rows, const Rows& next, const std::byte* w) {
    zeroSums<0>();
    zeroSums<1>();
    multiplyStep<0>(kSteps > 1 ? rows.at(kStep) : next, w);
    if constexpr (kSteps > 1) multiplyStep<1>(next, w + 2 * kStepBytes);
    if (pending_.last) write();
  }
  // following: the rows to load for the next step.
  template <int kIndex>
  HWY_INLINE void multiplyStep(const Rows& following, const std::byte* w) {
    Unit::template load<weightsAt(0)>(w, kRowBytes);
    Unit::template multiplySigned<sumsOf(0, 0), rowsAt(0), weightsAt(0)>();
    Unit::template load<weightsAt(1)>(w + kStepBytes, kRowBytes);
    Unit::template multiplySigned<sumsOf(0, 1), rowsAt(0), weightsAt(1)>();
    Unit::template loadOnce<rowsAt(0)>(following.first, sizeof(Digits));
    finish<2 * kIndex>();
    Unit::template multiplySigned<sumsOf(1, 0), rowsAt(1), weightsAt(0)>();
    Unit::template multiplySigned<sumsOf(1, 1), rowsAt(1), weightsAt(1)>();
    Unit::template loadOnce<rowsAt(1)>(following.first + following.second, sizeof(Digits));
    finish<2 * kIndex + 1>();
  }
  static HWY_INLINE void storeSums(std::byte* to) {
    constexpr int64_t kBytes = kRegisterRows * kRowBytes;
    Unit::template store<sumsOf(0, 0)>(to, kRowBytes);
    Unit::template store<sumsOf(0, 1)>(to + kBytes, kRowBytes);
    Unit::template store<sumsOf(1, 0)>(to + 2 * kBytes, kRowBytes);
    Unit::template store<sumsOf(1, 1)>(to + 3 * kBytes, kRowBytes);
  }

  // A run whose products are done but whose sums are not yet added to the totals.
  struct PendingRun {
    float* totals = nullptr;
    const float* scales = nullptr;   // the first row's; the other rows' are sizeof(FixedRuns) bytes apart
    const float* weights = nullptr;  // scales of the two panels
    const std::byte* sums = nullptr;
    int pair = 0, tile = 0;
    int rows = 0;                      // those that have totals
    bool first = false, last = false;  // whether it is the first or the last run of the totals
  };
  // Adds the sums of the pending run to the totals of kRows rows. The calls for all kIndex from 0 to 2 * kSteps - 1
  // finish the run.
  template <int kIndex>
  HWY_INLINE void finish() {
    constexpr int kRows = kTileOfBlock / (2 * kSteps);
    if (pending_.totals == nullptr || kIndex * kRows >= pending_.rows) return;
    Unit::template addRuns<kDigits, kIndex * kRows, (kIndex + 1) * kRows>(
        pending_.sums, pending_.scales, pending_.weights, pending_.first, pending_.totals);
  }
  // Writes finished totals to y.
  HWY_INLINE void write() const {
    const int64_t col = int64_t{pending_.pair} * 2 * kPanelCols;
    const int64_t cols = std::min<int64_t>(2 * kPanelCols, args_.cols - col);
    const int count = std::min(kTileOfBlock, args_.rows - pending_.tile * kTileOfBlock);
    for (int r = 0; r < count; ++r) {
      float* y = args_.y[pending_.tile * kTileOfBlock + r] + col;
      const float* total = pending_.totals + r * 2 * kPanelCols;
      if (cols < 2 * kPanelCols) {
        std::copy(total, total + cols, y);
      } else {
        const bool non_temporal = !args_.keep_y && reinterpret_cast<uintptr_t>(y) % 64 == 0;
        Unit::writeLine(reinterpret_cast<const std::byte*>(total), y, non_temporal);
        Unit::writeLine(reinterpret_cast<const std::byte*>(total + kPanelCols), y + kPanelCols, non_temporal);
      }
    }
  }

  const BlockArgs& args_;
  int tiles_;
  int64_t units_, chunks_, sections_, scale_bytes_;
  int flip_ = 0, parity_ = 0;
  PendingRun pending_;
  Chunk chunk_;
  struct alignas(64) {
    std::byte bytes[4 * kRegisterRows * kRowBytes];
  } sums_[2];
};

template <class Unit, DType kType, class Form>
void blockProduct(const BlockArgs& args) {
  static constexpr Palette palette = paletteOf<Form::kDigits>(2 * kRegisterRows, productInputs(Form::kRun));
  Unit::configure(args.tiles, &palette);
  BlockProduct<Unit, kType, Form>(args).run();
  Unit::finishWrites();
}

// Implements PanelKernels::block_scratch.
template <class Unit>
size_t blockScratch(int tiles, int64_t inputs, int64_t panels) {
  const int64_t bytes = kBlockTileRows * 2 * kPanelCols * static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>((sectionsOf(inputs) > 1 ? (panels + 1) / 2 : 1) * tiles * bytes);
}

// PanelKernels::block_rows. Measured with 16-bit inputs, 2048 of them, and 11264 outputs on two cores, in milliseconds
// by `run` and by `block`:
//   int8    20 rows 1.43, 1.37; 32 rows 1.66, 1.43
//   int4    24 rows 1.02, 0.99; 32 rows 1.21, 1.01
constexpr int blockRows(DType dtype) { return dtype == DType::kInt4 ? 24 : 20; }

template <class Unit, DType kType, class Form, int kFirst, int... kRows>
constexpr PanelKernels makeKernels(std::integer_sequence<int, kRows...>) {
  constexpr int kDigits = Form::kDigits;
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  kernels.pack = &Unit::template packFixed<kType, Form>;
  setFixedLayout<Form>(kDigits, kernels);
  ((kernels.run[kFirst + kRows] = &panelProduct<Unit, kType, kDigits, false, kFirst + kRows>), ...);
  ((kernels.passes[kFirst + kRows] = kPanelsInTurn / panelsAtOnce<kDigits>(kFirst + kRows)), ...);
  kernels.scale_columns = &Unit::scaleColumns;
  kernels.block = &blockProduct<Unit, kType, Form>;
  kernels.block_inputs = kFixedRun;
  kernels.block_rows = blockRows(kType);
  kernels.block_scratch = &blockScratch<Unit>;
  return kernels;
}

template <class Unit, DType kType, class Form, int kFirst>
inline constexpr PanelKernels kKernels =
    makeKernels<Unit, kType, Form, kFirst>(std::make_integer_sequence<int, kTileRows + 1 - kFirst>());

// The kernels of a format. kFirst: the number of rows of the smallest tile that they multiply.
template <class Unit, DType kType, int kFirst = 1>
const PanelKernels* kernelsOf(const WeightFormat& format) {
  return withFixedForm(format, [](auto form) { return &kKernels<Unit, kType, decltype(form), kFirst>; });
}

}  // namespace chorus::tiles::quantised
