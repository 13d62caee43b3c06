// The panel kernels of int8 and int4 by AMX: products of the stored integers and fixed-point inputs (fixed_point.h),
// with the same bits as those of panel_quantised_vnni-inl.h. The template parameter Unit provides the tile registers:
// the processor's (panel_quantised_tile.cc) or, in tests, arrays (emulated_tiles.h). Templates get the target
// attributes that the including file sets. Everything is a template of Unit, so that no two files share compiled code.
#pragma once

#include "kernels/linear/fixed_point.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/linear/tile_kernels-inl.h"

namespace chorus::tiles::quantised {

// Four accumulators hide the latency of a product. With two digits these are two registers of rows times one panel, or
// one times two; with one digit, two times two.
template <int kDigits>
constexpr int panelsAtOnce(int rows) {
  return kDigits == 1 || rows <= kRegisterRows ? 2 : 1;
}

// Numbers of the registers: accumulators, by digit (0: the high one) and by rows or panel, or with one digit by rows
// and panel; then the rows of a digit; then weights.
template <int kDigits>
constexpr int sumsAt(int digit, int rows, int panel) {
  return kDigits == 1 ? 2 * rows + panel : 2 * digit + rows + panel;
}
constexpr int rowsAt(int rows) { return 4 + rows; }
constexpr int weightsAt(int panel) { return 6 + panel; }

// Inputs of one product: as many as a register's row holds, or a run if that is shorter.
HWY_INLINE constexpr int64_t productInputs(int64_t run) { return std::min<int64_t>(run, 64); }

template <int kDigits>
constexpr Palette paletteOf(int rows, int64_t inputs) {
  Palette palette;
  const auto take = [&palette](int tile, int64_t num_rows, int64_t bytes) {
    palette.rows[tile] = static_cast<uint8_t>(num_rows);
    palette.row_bytes[tile] = static_cast<uint16_t>(bytes);
  };
  for (int i = 0; i < 2; ++i) {
    const bool second_rows = i > 0 && rows > kRegisterRows;
    const int count = second_rows ? rows - kRegisterRows : std::min(rows, kRegisterRows);
    take(sumsAt<kDigits>(0, i, 0), count, kRowBytes);
    take(kDigits == 1 ? sumsAt<kDigits>(0, i, 1) : sumsAt<kDigits>(1, i, 0), count, kRowBytes);
    take(rowsAt(i), count, inputs);
    take(weightsAt(i), inputs / 4, kRowBytes);
  }
  return palette;
}

// Computes kPanels panels from column `col` on.
template <class Unit, DType kType, int kDigits, bool kPerToken, int kRows, int kPanels>
struct Block {
  static constexpr int kUnit = kFixedUnit<kPerToken>;
  using Digits = FixedDigits<kDigits, kUnit>;
  static constexpr int kRegisters = registersOf(kRows);
  static constexpr int rowsOf(int i) { return std::min(kRegisterRows, kRows - i * kRegisterRows); }
  static constexpr int64_t kLaneInputs = kType == DType::kInt4 ? 8 : 4;
  static_assert(kDigits * kRegisters * kPanels <= 4);

  const PanelArgs& args;
  int64_t col;
  const std::byte* panels;
  // Running totals of the outputs, by panel and row; they start from y or from zero.
  struct alignas(64) Totals {
    float panel[kPanels][kRows][kPanelCols];
  };

  int64_t begin(int p) const { return std::clamp<int64_t>(args.skip - col - p * kPanelCols, 0, kPanelCols); }
  int64_t end(int p) const { return std::clamp<int64_t>(args.cols - col - p * kPanelCols, begin(p), kPanelCols); }

  void load(Totals& totals) const {
    std::memset(&totals, 0, sizeof totals);
    for (int p = 0; args.accumulate && p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) {
        const float* y = args.y[r] + col + p * kPanelCols;
        std::copy(y + begin(p), y + end(p), totals.panel[p][r] + begin(p));
      }
    }
  }
  void store(const Totals& totals) const {
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) {
        const float* total = totals.panel[p][r];
        std::copy(total + begin(p), total + end(p), args.y[r] + col + p * kPanelCols + begin(p));
      }
    }
  }

  // Loads the weights of `inputs` inputs from a panel's lanes, of which only `left` are left; reads nothing past these.
  // The digits of the missing inputs are zero.
  template <int kPanel>
  HWY_INLINE void loadWeights(const std::byte* lanes, int64_t inputs, int64_t left, Buffer& buffer) const {
    const int64_t count = (std::min(inputs, left) + kLaneInputs - 1) / kLaneInputs;
    if (kType == DType::kInt8 && count == inputs / kLaneInputs) {
      return Unit::template load<weightsAt(kPanel)>(lanes, kRowBytes);
    }
    if constexpr (kType == DType::kInt4) {
      for (int64_t i = 0; i < count; ++i)
        Unit::nibbles(lanes + i * kRowBytes, buffer.row(2 * i), buffer.row(2 * i + 1));
    } else {
      std::memcpy(&buffer, lanes, static_cast<size_t>(count * kRowBytes));
    }
    const int64_t filled = count * kLaneInputs / 4 * kRowBytes;
    const int64_t empty = inputs / 4 * kRowBytes - filled;
    if (empty > 0) std::memset(buffer.bytes + filled, 0, static_cast<size_t>(empty));
    Unit::template load<weightsAt(kPanel)>(&buffer, kRowBytes);
  }
  // Calls call<register of rows, panel>() for every accumulator of a digit.
  template <class Call>
  static HWY_INLINE void forEachSum(const Call& call) {
    call.template operator()<0, 0>();
    if constexpr (kPanels > 1) call.template operator()<0, 1>();
    if constexpr (kRegisters > 1) call.template operator()<1, 0>();
    if constexpr (kRegisters > 1 && kPanels > 1) call.template operator()<1, 1>();
  }
  template <int kDigit>
  HWY_INLINE void multiplyDigit(const Digits* digits, int64_t input) const {
    Unit::template load<rowsAt(0)>(digits[0].digit[kDigit] + input, sizeof(Digits));
    if constexpr (kRegisters > 1) {
      Unit::template load<rowsAt(1)>(digits[kRegisterRows].digit[kDigit] + input, sizeof(Digits));
    }
    forEachSum([]<int kReg, int kPanel>() __attribute__((always_inline)) {
      Unit::template multiplyInt8<sumsAt<kDigits>(kDigit, kReg, kPanel), rowsAt(kReg), weightsAt(kPanel)>();
    });
  }
  template <int kDigit>
  static HWY_INLINE void zeroDigit() {
    forEachSum([]<int kReg, int kPanel>()
                   __attribute__((always_inline)) { Unit::template zero<sumsAt<kDigits>(kDigit, kReg, kPanel)>(); });
  }
  // Scale and correction of a row's run number `run`; per token, of the whole row.
  HWY_INLINE TokenRun runOf(const FixedRuns* runs, int row, int64_t run) const {
    if constexpr (kPerToken) return tokenRuns<Digits>(args.x, kRows, args.inputs)[row];
    return {runs[row].scale[run], runs[row].correction[run]};
  }
  // Adds one run's sums, times their scales, to the totals.
  template <int kReg, int kPanel>
  HWY_INLINE void add(const std::byte* scales, const FixedRuns* runs, int64_t run, Totals& totals) const {
    Buffer sums[kDigits];
    Unit::template store<sumsAt<kDigits>(0, kReg, kPanel)>(&sums[0], kRowBytes);
    if constexpr (kDigits > 1) Unit::template store<sumsAt<kDigits>(1, kReg, kPanel)>(&sums[1], kRowBytes);
    for (int r = 0; r < rowsOf(kReg); ++r) {
      const int row = kReg * kRegisterRows + r;
      const TokenRun of_row = runOf(runs, row, run);
      Unit::template addRun<kDigits>(sums[0].row(r), sizeof(Buffer), of_row.correction, of_row.scale,
                                     scales + kPanel * args.panel_stride, args.scale_dtype, totals.panel[kPanel][row]);
    }
  }

  HWY_INLINE void run(LineQueue& queue) const {
    // Prefetch distance in bytes. Near a panel's end, the prefetch continues in the panel that is taken after this
    // block.
    constexpr int64_t kAhead = 2048;
    const int64_t fixed_run = std::min<int64_t>(args.group, kUnit), step = productInputs(fixed_run);
    const int64_t scale_bytes =
        kPerToken ? kTokenScaleBytes : kPanelCols * static_cast<int64_t>(dtypeSize(args.scale_dtype));
    const int64_t stride = args.panel_stride;
    const std::byte* near_end = panels + std::max<int64_t>(0, stride - kAhead);
    Totals totals;
    load(totals);
    Buffer buffer;
    const std::byte *at = panels, *scales = panels;
    const auto* x = static_cast<const std::byte*>(args.x);
    for (int64_t i = 0; i < args.inputs; i += kUnit, x += kRows * kFixedBytes<Digits, kPerToken>) {
      const auto* digits = reinterpret_cast<const Digits*>(x);
      const auto* runs = reinterpret_cast<const FixedRuns*>(digits + kRows);
      const int64_t last = std::min<int64_t>(args.inputs - i, kUnit);
      for (int64_t first = 0, n = 0; first < last; first += fixed_run, ++n) {
        if (kPerToken ? i == 0 : (i + first) % args.group == 0) {
          scales = at;
          at += scale_bytes;
        }
        if (!kPerToken || i == 0) {
          zeroDigit<0>();
          if constexpr (kDigits > 1) zeroDigit<1>();
        }
        const int64_t run_end = std::min(first + fixed_run, last);
        for (int64_t input = first; input < run_end; input += step) {
          const int64_t lanes = (std::min(step, run_end - input) + kLaneInputs - 1) / kLaneInputs;
          queue.take(static_cast<int>(step / 4));
          if (args.stream) {
            const std::byte* ahead = at + kAhead + (at < near_end ? 0 : (kPanels - 1) * stride);
            for (int p = 0; p < kPanels; ++p, ahead += stride) {
              for (int64_t line = 0; line < lanes; ++line) __builtin_prefetch(ahead + line * kRowBytes);
            }
          }
          loadWeights<0>(at, step, run_end - input, buffer);
          if constexpr (kPanels > 1) loadWeights<1>(at + stride, step, run_end - input, buffer);
          multiplyDigit<0>(digits, input);
          if constexpr (kDigits > 1) multiplyDigit<1>(digits, input);
          at += lanes * kRowBytes;
        }
        if (kPerToken && i + kUnit < args.inputs) continue;
        forEachSum([&]<int kReg, int kPanel>()
                       __attribute__((always_inline)) { add<kReg, kPanel>(scales, runs, n, totals); });
      }
    }
    store(totals);
  }
};

template <class Unit, DType kType, int kDigits, bool kPerToken, int kRows>
void panelProduct(const PanelArgs& args) {
  constexpr int kMost = panelsAtOnce<kDigits>(kRows);
  static constexpr Palette whole = paletteOf<kDigits>(kRows, 64), half = paletteOf<kDigits>(kRows, 32);
  Unit::configure(args.tiles, args.group < 64 ? &half : &whole);
  LineQueueCopy queue(args.ahead);
  auto* panels = static_cast<const std::byte*>(args.panels);
  int64_t left = (args.cols + kPanelCols - 1) / kPanelCols;
  for (int64_t col = 0; left > 0;) {
    const int64_t now = std::min<int64_t>(left, kMost);
    if (now == kMost) {
      Block<Unit, kType, kDigits, kPerToken, kRows, kMost>{args, col, panels}.run(queue);
    } else {
      Block<Unit, kType, kDigits, kPerToken, kRows, 1>{args, col, panels}.run(queue);
    }
    left -= now;
    col += now * kPanelCols;
    panels += now * args.panel_stride;
  }
}

}  // namespace chorus::tiles::quantised
