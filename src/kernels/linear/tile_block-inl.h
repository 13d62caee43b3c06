// The product of a block of rows by AMX (PanelKernels::block) where a sum takes all inputs of a row: with bfloat16
// weights, and with int8 ones by tile_per_token-inl.h. It uses the registers of tile_kernels-inl.h and, like the
// kernels there, is a template of Unit.
//
// Four registers accumulate the sums of 32 rows and two panels, so four products need four loads. The limit is the
// number of cache misses that L1 can have outstanding. The loops are therefore ordered so that data is loaded from
// near caches:
//   section: a range of inputs for which the packed rows of the block stay in L2
//     pair of panels
//       slice: a range of inputs for which the pair's weights stay in L1 while all tiles are multiplied by them
//         tile of 32 rows
// Between two slices, sums are stored in the layout of the registers. The chain of a sum is that of tile_kernels-inl.h.
#pragma once

#include "kernels/linear/panel_layout.h"
#include "kernels/linear/tile_kernels-inl.h"

namespace chorus::tiles {

// Inputs are counted in units of two bytes here, in Slices and in blockScratch.
//
// Maximum inputs of a single section, and inputs of one of several sections. The latter is smaller, because the sums
// of all pairs then take a part of L2 too.
inline constexpr int64_t kOneSection = 2048, kSectionInputs = 1408;
// Maximum inputs of a slice. With few tiles, the weights of the next slice are loaded sooner; a shorter slice leaves
// them space in L1.
constexpr int64_t sliceInputs(int tiles) { return tiles <= 4 ? 256 : 512; }
HWY_INLINE int64_t sectionsOf(int64_t inputs) {
  return inputs <= kOneSection ? 1 : (inputs + kSectionInputs - 1) / kSectionInputs;
}

// Steps, of which each takes the inputs of one row of a register, divided into slices of almost equal length, and these
// into sections.
struct Slices {
  int64_t steps, slices, sections;

  Slices(int64_t inputs, int tiles)
      : steps(inputs / kBlockInputs),
        slices((inputs + sliceInputs(tiles) - 1) / sliceInputs(tiles)),
        sections(sectionsOf(inputs)) {}
  int64_t begin(int64_t slice) const { return steps * slice / slices; }         // in steps
  int64_t first(int64_t section) const { return slices * section / sections; }  // in slices
};

// Bytes of the four registers of sums of one tile and one pair of panels.
inline constexpr int64_t kSumsBytes = 4 * kRegisterRows * kRowBytes;

// Prefetches the next pair of panels into L2 in portions. A portion has one line of each of several pages, because many
// lines of the same page take longer to arrive.
class PairPrefetch {
 public:
  // Prefetches `bytes` bytes of a panel from `first` on, and as many of the next panel, `stride` bytes later, within
  // about `portions` calls of portion(). first: null to prefetch nothing. tiles: number of tiles of the block.
  HWY_INLINE PairPrefetch(const std::byte* first, int64_t stride, int64_t bytes, int tiles, int64_t portions)
      : pages_(tiles <= 4 ? 4 : 2) {
    if (first == nullptr || portions <= 0) return;
    at_[0] = first;
    at_[1] = first + stride;
    const int64_t span = pages_ * kPage;
    left_ = 2 * kPage / 64 * ((bytes + span - 1) / span);
    // Somewhat faster than needed, because a portion that is late delays the products.
    rate_ = left_ * kOne * 115 / 100 / portions;
  }
  // Prefetches the portions that are due.
  HWY_INLINE void portion() {
    if (left_ == 0) return;
    for (credit_ += rate_; credit_ >= kOne && left_ > 0; credit_ -= kOne, --left_, ++done_) {
      const std::byte* line = at_[done_ & 1] + (done_ >> 7) * pages_ * kPage + (done_ >> 1 & 63) * 64;
      for (int page = 0; page < pages_; ++page) __builtin_prefetch(line + page * kPage, 0, 2);
    }
  }

 private:
  static constexpr int64_t kPage = 4096, kOne = 1 << 16;
  const std::byte* at_[2] = {};
  int pages_;
  // Portions that are done. Bit 0 is the panel, bits 1 to 6 the line in a page, and the rest counts groups of pages_
  // pages.
  int64_t done_ = 0;
  int64_t left_ = 0;                  // remaining portions
  int64_t rate_ = 0, credit_ = kOne;  // portions per call and portions that are due, times kOne
};

// Prefetches B of a LoRA term into L1 during the products before it: one cache line of each of two panels per step.
struct TermPrefetch {
  const std::byte* panels[2] = {};  // the next line of each panel; null: nothing of this panel
  int64_t lines = 0;                // lines of each panel that are not prefetched yet

  HWY_INLINE void step() {
    if (lines == 0) return;
    --lines;
    for (const std::byte*& line : panels) {
      if (line == nullptr) continue;
      __builtin_prefetch(line, 0, 3);
      line += 64;
    }
  }
};

// The elements of rows and weights. Elements classes have:
//   - kBytes: of an input. kPanelHead: of a panel before its first input. kTerms: whether LoRA terms can be added.
//   - multiply<sums, rows, weights>: sums += rows . weights; numbers of registers.
//   - finish: turns the sums of a tile, as in BlockProduct::done_, into outputs. rows: the packed tile, of packed_rows
//     rows; panels: the two of the pair.
template <class Unit>
struct Bf16Elements {
  static constexpr int64_t kBytes = 2, kPanelHead = 0;
  static constexpr bool kTerms = true;
  template <int kSums, int kRows, int kWeights>
  static HWY_INLINE void multiply() {
    Unit::template multiplyBf16<kSums, kRows, kWeights>();
  }
  static HWY_INLINE void finish(const BlockArgs&, const std::byte*, int, const std::byte* const (&)[2], std::byte*) {}
};

template <class Unit, class Elements>
class BlockProduct {
 public:
  HWY_INLINE explicit BlockProduct(const BlockArgs& args)
      : args_(args),
        tiles_((args.rows + kBlockTileRows - 1) / kBlockTileRows),
        last_registers_((args.rows - (tiles_ - 1) * kBlockTileRows + kRegisterRows - 1) / kRegisterRows),
        slices_(args.inputs * Elements::kBytes / 2, tiles_),
        sums_(static_cast<std::byte*>(args.scratch)) {}

  HWY_INLINE void run() {
    const int64_t pairs = (args_.cols + 2 * kPanelCols - 1) / (2 * kPanelCols);
    for (int64_t section = 0; section < slices_.sections; ++section) {
      for (int64_t pair = 0; pair < pairs; ++pair) {
        std::byte* sums = slices_.sections > 1 ? sums_ + pair * tiles_ * kSumsBytes : sums_;
        PairPrefetch ahead = prefetchAfter(section, pair, pairs);
        for (int64_t s = slices_.first(section); s < slices_.first(section + 1); ++s)
          multiplySlice(pair, s, sums, ahead);
      }
    }
  }

 private:
  static constexpr int64_t kPanelStep = kRegisterRows * kRowBytes;  // bytes of a panel's step
  const std::byte* panel(int64_t index) const {
    return static_cast<const std::byte*>(args_.panels) + index * args_.panel_stride;
  }
  bool hasSecond(int64_t pair) const { return (2 * pair + 1) * kPanelCols < args_.cols; }
  // The second panel of a pair, or the first one if there is no second. Its sums are not used then.
  const std::byte* second(int64_t pair) const { return panel(2 * pair + (hasSecond(pair) ? 1 : 0)); }

  // The prefetch during a pair: of the next pair in the section, or of the first one in the next section, or of
  // BlockArgs::next.
  PairPrefetch prefetchAfter(int64_t section, int64_t pair, int64_t pairs) const {
    const bool last = pair + 1 == pairs, end = last && section + 1 == slices_.sections;
    const int64_t next = end ? 0 : last ? section + 1 : section;
    const int64_t from = slices_.begin(slices_.first(next)), to = slices_.begin(slices_.first(next + 1));
    const int64_t now = slices_.begin(slices_.first(section + 1)) - slices_.begin(slices_.first(section));
    const std::byte* first = end ? static_cast<const std::byte*>(args_.next) : panel(last ? 0 : 2 * pair + 2);
    const bool both = end || last || hasSecond(pair + 1);
    return PairPrefetch(first == nullptr ? nullptr : first + Elements::kPanelHead + from * kPanelStep,
                        both ? args_.panel_stride : 0, (to - from) * kPanelStep, tiles_, now * tiles_);
  }

  // The packed rows of a tile at a step.
  const std::byte* rows(int tile, int64_t step) const {
    return static_cast<const std::byte*>(args_.x) + tile * args_.tile_stride +
           step * registers(tile) * kRegisterRows * kRowBytes;
  }
  int registers(int tile) const { return tile + 1 == tiles_ ? last_registers_ : 2; }

  HWY_INLINE void multiplySlice(int64_t pair, int64_t slice, std::byte* sums, PairPrefetch& ahead) {
    const int64_t begin = slices_.begin(slice), steps = slices_.begin(slice + 1) - begin;
    const bool first = slice == 0, last = slice + 1 == slices_.slices;
    const std::byte* w0 = panel(2 * pair) + Elements::kPanelHead + begin * kPanelStep;
    const std::byte* w1 = second(pair) + Elements::kPanelHead + begin * kPanelStep;
    Unit::template load<rowsAt(0)>(rows(0, begin), kRowBytes);
    if (!first) loadSums(sums);
    for (int tile = 0; tile < tiles_; ++tile) {
      const bool more = tile + 1 < tiles_;
      if (first) zeroSums();
      Step step{rows(tile, begin), w0, w1};
      std::byte* tile_sums = sums + tile * kSumsBytes;
      // The next tile's sums, of which most are in L2, are prefetched for writing.
      const std::byte* fetch = more && !first ? tile_sums + kSumsBytes : nullptr;
      const std::byte* next_rows = rows(more ? tile + 1 : tile, begin);
      TermPrefetch terms;
      if (last) terms = firstTerm(pair, tile);
      if (registers(tile) == 2) {
        multiplySteps<2>(step, steps - 1, ahead, terms, fetch);
        finish<2>(step, pair, tile, tile_sums, first, last, next_rows);
      } else {
        multiplySteps<1>(step, steps - 1, ahead, terms, fetch);
        finish<1>(step, pair, tile, tile_sums, first, last, next_rows);
      }
    }
  }

  struct Step {
    const std::byte *x, *w0, *w1;
  };
  template <int kSums>
  static HWY_INLINE void loadSum(const std::byte* sums) {
    Unit::template load<kSums>(sums + kSums * kRegisterRows * kRowBytes, kRowBytes);
  }
  static HWY_INLINE void loadSums(const std::byte* sums) {
    loadSum<0>(sums), loadSum<1>(sums), loadSum<2>(sums), loadSum<3>(sums);
  }
  static HWY_INLINE void zeroSums() {
    Unit::template zero<0>(), Unit::template zero<1>(), Unit::template zero<2>(), Unit::template zero<3>();
  }

  // Multiplies all steps of a slice but the last. Register rowsAt(0) is loaded one step ahead, so that no product
  // waits for it. fetch: sums to prefetch, or null.
  template <int kRegisters>
  HWY_INLINE void multiplySteps(Step& step, int64_t steps, PairPrefetch& ahead, TermPrefetch& terms,
                                const std::byte* fetch) const {
    constexpr int64_t kRowsStep = kRegisters * kRegisterRows * kRowBytes;
    constexpr int kFetchLines = 5;
    for (int64_t i = 0; i < steps; ++i) {
      ahead.portion();
      terms.step();
      if (fetch != nullptr) {
        for (int line = 0; line < kFetchLines; ++line, fetch += 64) __builtin_prefetch(fetch, 1, 3);
      }
      Unit::template load<weightsAt(0)>(step.w0, kRowBytes);
      if constexpr (kRegisters > 1) Unit::template loadOnce<rowsAt(1)>(step.x + kRegisterRows * kRowBytes, kRowBytes);
      Elements::template multiply<sumsAt(0, 0), rowsAt(0), weightsAt(0)>();
      Unit::template load<weightsAt(1)>(step.w1, kRowBytes);
      Elements::template multiply<sumsAt(0, 1), rowsAt(0), weightsAt(1)>();
      step.x += kRowsStep, step.w0 += kPanelStep, step.w1 += kPanelStep;
      Unit::template loadOnce<rowsAt(0)>(step.x, kRowBytes);
      if constexpr (kRegisters > 1) {
        Elements::template multiply<sumsAt(1, 0), rowsAt(1), weightsAt(0)>();
        Elements::template multiply<sumsAt(1, 1), rowsAt(1), weightsAt(1)>();
      }
    }
  }

  // Multiplies the last step of a slice. Every register of sums is stored as soon as it is complete, and then loaded
  // with the sums of the next tile.
  template <int kRegisters>
  HWY_INLINE void finish(const Step& step, int64_t pair, int tile, std::byte* sums, bool first, bool last,
                         const std::byte* next_rows) {
    const std::byte* next_sums = first || tile + 1 == tiles_ ? nullptr : sums + kSumsBytes;
    std::byte* to = last ? done_.bytes : sums;
    const bool terms =
        Elements::kTerms && last && !args_.terms.empty() && !args_.terms[static_cast<size_t>(tile)].empty();
    Unit::template load<weightsAt(0)>(step.w0, kRowBytes);
    if constexpr (kRegisters > 1) Unit::template loadOnce<rowsAt(1)>(step.x + kRegisterRows * kRowBytes, kRowBytes);
    Elements::template multiply<sumsAt(0, 0), rowsAt(0), weightsAt(0)>();
    Unit::template load<weightsAt(1)>(step.w1, kRowBytes);
    Elements::template multiply<sumsAt(0, 1), rowsAt(0), weightsAt(1)>();
    if (terms) {
      if constexpr (kRegisters > 1) {
        Elements::template multiply<sumsAt(1, 0), rowsAt(1), weightsAt(0)>();
        Elements::template multiply<sumsAt(1, 1), rowsAt(1), weightsAt(1)>();
      }
      for (const BlockTerm& term : args_.terms[static_cast<size_t>(tile)]) addTerm<kRegisters>(term, pair);
      Unit::template loadOnce<rowsAt(0)>(next_rows, kRowBytes);
      replaceSum<0>(to, next_sums);
      replaceSum<1>(to, next_sums);
    } else {
      Unit::template loadOnce<rowsAt(0)>(next_rows, kRowBytes);
      replaceSum<0>(to, next_sums);
      if constexpr (kRegisters > 1) Elements::template multiply<sumsAt(1, 0), rowsAt(1), weightsAt(0)>();
      replaceSum<1>(to, next_sums);
      if constexpr (kRegisters > 1) Elements::template multiply<sumsAt(1, 1), rowsAt(1), weightsAt(1)>();
    }
    replaceSum<2>(to, next_sums);
    replaceSum<3>(to, next_sums);
    if (last) {
      const std::byte* const panels[2] = {panel(2 * pair), second(pair)};
      Elements::finish(args_, rows(tile, 0), kRegisters * kRegisterRows, panels, done_.bytes);
      write(pair, tile);
    }
  }
  template <int kSums>
  static HWY_INLINE void replaceSum(std::byte* to, const std::byte* next) {
    Unit::template store<kSums>(to + kSums * kRegisterRows * kRowBytes, kRowBytes);
    if (next != nullptr) loadSum<kSums>(next);
  }

  // Sets `panels` to the term's B for the two panels of the pair; null where the term has no such columns. Returns
  // whether it has any.
  HWY_INLINE bool termPanels(const BlockTerm& term, int64_t pair, const std::byte* (&panels)[2]) const {
    const int64_t stride = (term.rank + 1) / 2 * kRowBytes;
    for (int64_t p = 0; p < 2; ++p) {
      const int64_t col = args_.first_col + (2 * pair + p) * kPanelCols - term.col_begin;
      const bool used = col >= 0 && col < term.cols;
      panels[p] = used ? static_cast<const std::byte*>(term.b) + col / kPanelCols * stride : nullptr;
    }
    return panels[0] != nullptr || panels[1] != nullptr;
  }
  // Returns the prefetch of the tile's first term that has columns of the pair.
  HWY_INLINE TermPrefetch firstTerm(int64_t pair, int tile) const {
    TermPrefetch prefetch;
    if (!Elements::kTerms || args_.terms.empty()) return prefetch;
    for (const BlockTerm& term : args_.terms[static_cast<size_t>(tile)]) {
      if (!termPanels(term, pair, prefetch.panels)) continue;
      prefetch.lines = (term.rank + 1) / 2;
      break;
    }
    return prefetch;
  }

  // Adds a LoRA term to the sums of a tile and the pair's columns.
  template <int kRegisters>
  HWY_INLINE void addTerm(const BlockTerm& term, int64_t pair) {
    const std::byte* b[2];
    if (!termPanels(term, pair, b)) return;
    const auto* t = static_cast<const std::byte*>(term.t);
    for (int64_t i = 0; i < term.rank; i += kBlockInputs) {
      const int64_t pairs = (std::min(kBlockInputs, term.rank - i) + 1) / 2;
      Unit::template load<rowsAt(0)>(t, kRowBytes);
      t += kRegisterRows * kRowBytes;
      if constexpr (kRegisters > 1) {
        Unit::template load<rowsAt(1)>(t, kRowBytes);
        t += kRegisterRows * kRowBytes;
      }
      if (b[0] != nullptr) {
        loadTermWeights<0>(b[0] + i / 2 * kRowBytes, pairs);
        Unit::template multiplyBf16<sumsAt(0, 0), rowsAt(0), weightsAt(0)>();
        if constexpr (kRegisters > 1) Unit::template multiplyBf16<sumsAt(1, 0), rowsAt(1), weightsAt(0)>();
      }
      if (b[1] != nullptr) {
        loadTermWeights<1>(b[1] + i / 2 * kRowBytes, pairs);
        Unit::template multiplyBf16<sumsAt(0, 1), rowsAt(0), weightsAt(1)>();
        if constexpr (kRegisters > 1) Unit::template multiplyBf16<sumsAt(1, 1), rowsAt(1), weightsAt(1)>();
      }
    }
  }
  // Loads `pairs` pairs of inputs of a panel of B. If they are fewer than a register holds, they are padded with zeros
  // in a buffer, whose contents are reused while consecutive tiles have the same term.
  template <int kPanel>
  HWY_INLINE void loadTermWeights(const std::byte* b, int64_t pairs) {
    if (pairs == kRegisterRows) return Unit::template load<weightsAt(kPanel)>(b, kRowBytes);
    if (padded_of_[kPanel] != b) {
      std::memcpy(&padded_[kPanel], b, static_cast<size_t>(pairs * kRowBytes));
      std::memset(padded_[kPanel].row(pairs), 0, static_cast<size_t>((kRegisterRows - pairs) * kRowBytes));
      padded_of_[kPanel] = b;
    }
    Unit::template load<weightsAt(kPanel)>(&padded_[kPanel], kRowBytes);
  }

  // Writes the finished sums of a tile, which are in done_, to y.
  HWY_INLINE void write(int64_t pair, int tile) const {
    const int64_t col = pair * 2 * kPanelCols, cols = std::min<int64_t>(2 * kPanelCols, args_.cols - col);
    const int count = std::min(kBlockTileRows, args_.rows - tile * kBlockTileRows);
    for (int r = 0; r < count; ++r) {
      float* y = args_.y[tile * kBlockTileRows + r] + col;
      const std::byte* sums = done_.bytes + r / kRegisterRows * 2 * kPanelStep + r % kRegisterRows * kRowBytes;
      if (cols < 2 * kPanelCols) {
        std::memcpy(y, sums, static_cast<size_t>(std::min<int64_t>(cols, kPanelCols)) * sizeof(float));
        if (cols > kPanelCols)
          std::memcpy(y + kPanelCols, sums + kPanelStep, static_cast<size_t>(cols - kPanelCols) * sizeof(float));
      } else {
        const bool non_temporal = !args_.keep_y && reinterpret_cast<uintptr_t>(y) % 64 == 0;
        Unit::writeLine(sums, y, non_temporal);
        Unit::writeLine(sums + kPanelStep, y + kPanelCols, non_temporal);
      }
    }
  }

  const BlockArgs& args_;
  int tiles_;
  int last_registers_;
  Slices slices_;
  std::byte* sums_;
  Buffer padded_[2];
  const std::byte* padded_of_[2] = {};  // the weights that padded_ holds
  struct alignas(64) {                  // finished sums of one tile, in the layout of the registers
    std::byte bytes[kSumsBytes];
  } done_;
};

template <class Unit>
void blockProduct(const BlockArgs& args) {
  static constexpr Palette palette = paletteOf(kBlockTileRows);
  Unit::configure(args.tiles, &palette);
  BlockProduct<Unit, Bf16Elements<Unit>>(args).run();
  Unit::finishWrites();
}

// Implements PanelKernels::block_scratch.
template <class Unit>
size_t blockScratch(int tiles, int64_t inputs, int64_t panels) {
  return static_cast<size_t>((sectionsOf(inputs) > 1 ? (panels + 1) / 2 : 1) * tiles * kSumsBytes);
}

template <class Unit, int... kRows>
constexpr PanelKernels makeKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  kernels.pack = &pack<Unit>;
  kernels.element_bytes = 2;
  ((kernels.run[kRows + 1] = &panelProduct<Unit, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / panelsAtOnce(kRows + 1)), ...);
  kernels.takes_part_of_tile = true;
  kernels.block = &blockProduct<Unit>;
  kernels.block_inputs = kBlockInputs;
  kernels.block_scratch = &blockScratch<Unit>;
  kernels.scale_columns = &Unit::scaleColumns;
  return kernels;
}

template <class Unit>
inline constexpr PanelKernels kKernels = makeKernels<Unit>(std::make_integer_sequence<int, kTileRows>());

}  // namespace chorus::tiles
