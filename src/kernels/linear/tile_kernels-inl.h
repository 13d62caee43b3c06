// The panel kernels of bfloat16 weights by AMX. The template parameter Unit provides the tile registers: the
// processor's (panel_bf16_tile.cc) or, in tests, arrays (emulated_tiles.h). Templates get the target attributes that
// the including file sets. Everything is a template of Unit, so that no two files share compiled code.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include <hwy/base.h>
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

namespace chorus::tiles {

inline constexpr int kRegisterRows = 16;
inline constexpr int64_t kRowBytes = 64;     // of a register's row: 16 floats, 32 bfloat16 or 64 int8
inline constexpr int64_t kBlockInputs = 32;  // inputs of one product
// Two registers of rows times two panels: four accumulators hide a product's latency, and each load is used twice.
inline constexpr int kTileRows = 2 * kRegisterRows;
constexpr int registersOf(int rows) { return (rows + kRegisterRows - 1) / kRegisterRows; }
// A single row is bound by memory, which is read fastest as a single stream.
constexpr int panelsAtOnce(int rows) { return rows == 1 ? 1 : 2; }
static_assert(kTileRows <= kMaxTileRows);

// Numbers of the registers: accumulators by rows and panels, then rows, then weights.
constexpr int sumsAt(int rows, int panel) { return 2 * rows + panel; }
constexpr int rowsAt(int rows) { return 4 + rows; }
constexpr int weightsAt(int panel) { return 6 + panel; }

// A configuration of the tile registers, in the format of LDTILECFG.
struct alignas(64) Palette {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(Palette) == 64);

constexpr Palette paletteOf(int rows) {
  Palette palette;
  for (int i = 0; i < 8; ++i) palette.row_bytes[i] = kRowBytes;
  for (int i = 0; i < 2; ++i) {
    const int count = std::clamp(rows - i * kRegisterRows, 1, kRegisterRows);
    palette.rows[sumsAt(i, 0)] = palette.rows[sumsAt(i, 1)] = palette.rows[rowsAt(i)] = static_cast<uint8_t>(count);
    palette.rows[weightsAt(i)] = kRegisterRows;
  }
  return palette;
}

// PanelKernels::pack: 32 inputs of a row become one row of a register.
template <class Unit>
void pack(const float* const* rows, int count, int64_t inputs, void* tile) {
  constexpr int64_t kPackAhead = 96;  // floats
  auto* dst = static_cast<std::byte*>(tile);
  for (int64_t i = 0; i < inputs; i += kBlockInputs) {
    const int64_t some = std::min(kBlockInputs, inputs - i);
    const int64_t bytes = (some + 3) / 4 * 8;
    for (int r = 0; r < count; ++r, dst += bytes) {
      // The hardware prefetchers do not follow this many rows.
      __builtin_prefetch(rows[r] + i + kPackAhead);
      __builtin_prefetch(rows[r] + i + kPackAhead + 16);
      Unit::round(rows[r] + i, some, dst);
    }
  }
}

// The contents of one register, for data that registers cannot load or store in place.
struct alignas(64) Buffer {
  std::byte bytes[kRegisterRows * kRowBytes];
  HWY_INLINE std::byte* row(int64_t r) { return bytes + r * kRowBytes; }
};

// Copies up to 32 inputs from i on, of rows [first, first + count) of a tile of kRows, and pads them with zeros.
template <class Unit, int kRows>
HWY_INLINE void gatherRows(const PanelArgs& args, int64_t i, int first, int count, Buffer& buffer) {
  std::memset(&buffer, 0, sizeof buffer);
  const int64_t piece = args.x_piece == 0 ? kBlockInputs : args.x_piece;
  const int64_t end = std::min(args.inputs, i + kBlockInputs);
  for (int64_t from = i; from < end; from += piece) {
    const int64_t row_bytes = args.x_piece == 0 ? (std::min(kBlockInputs, args.inputs - from) + 3) / 4 * 8 : piece * 2;
    const std::byte* x = static_cast<const std::byte*>(args.x) + from * kRows * 2 + first * row_bytes;
    const auto bytes = static_cast<size_t>(std::min(piece, end - from) * 2);
    for (int r = 0; r < count; ++r) std::memcpy(buffer.row(r) + (from - i) * 2, x + r * row_bytes, bytes);
  }
}

// Copies up to 32 inputs of a panel, of which `left` are left, and pads them with zeros. Reads nothing past the last
// pair.
template <class Unit>
HWY_INLINE void gatherWeights(const std::byte* panel, int64_t stride, int64_t left, Buffer& buffer) {
  const int64_t pairs = std::min<int64_t>(kRegisterRows, (left + 1) / 2);
  for (int64_t pair = 0; pair < pairs; ++pair) std::memcpy(buffer.row(pair), panel + pair * stride, kRowBytes);
  std::memset(buffer.row(pairs), 0, static_cast<size_t>((kRegisterRows - pairs) * kRowBytes));
}

// Computes kPanels panels from column `col` on.
template <class Unit, int kRows, int kPanels>
struct Block {
  static constexpr int kRegisters = registersOf(kRows);
  static constexpr int rowsOf(int i) { return std::min(kRegisterRows, kRows - i * kRegisterRows); }

  const PanelArgs& args;
  int64_t col;
  const std::byte* panels;

  // The used columns of panel p are [begin(p), end(p)).
  int64_t begin(int p) const { return std::clamp<int64_t>(args.skip - col - p * kPanelCols, 0, kPanelCols); }
  int64_t end(int p) const { return std::clamp<int64_t>(args.cols - col - p * kPanelCols, begin(p), kPanelCols); }

  template <int kReg, int kPanel>
  HWY_INLINE void loadSums() const {
    if (!args.accumulate) return Unit::template zero<sumsAt(kReg, kPanel)>();
    Buffer buffer;
    const int64_t from = begin(kPanel), to = end(kPanel);
    if (to - from < kPanelCols) std::memset(&buffer, 0, sizeof buffer);
    for (int r = 0; r < rowsOf(kReg); ++r) {
      const float* y = args.y[kReg * kRegisterRows + r] + col + kPanel * kPanelCols;
      if (to - from == kPanelCols) {
        std::memcpy(buffer.row(r), y, kRowBytes);
      } else {
        std::memcpy(buffer.row(r) + from * 4, y + from, static_cast<size_t>(to - from) * 4);
      }
    }
    Unit::template load<sumsAt(kReg, kPanel)>(&buffer, kRowBytes);
  }
  template <int kReg, int kPanel>
  HWY_INLINE void storeSums() const {
    Buffer buffer;
    Unit::template store<sumsAt(kReg, kPanel)>(&buffer, kRowBytes);
    const int64_t from = begin(kPanel), to = end(kPanel);
    for (int r = 0; r < rowsOf(kReg); ++r) {
      float* y = args.y[kReg * kRegisterRows + r] + col + kPanel * kPanelCols;
      if (to - from == kPanelCols) {
        std::memcpy(y, buffer.row(r), kRowBytes);
      } else {
        std::memcpy(y + from, buffer.row(r) + from * 4, static_cast<size_t>(to - from) * 4);
      }
    }
  }
  template <int kPanel>
  HWY_INLINE void multiply() const {
    Unit::template multiplyBf16<sumsAt(0, kPanel), rowsAt(0), weightsAt(kPanel)>();
    if constexpr (kRegisters > 1) Unit::template multiplyBf16<sumsAt(1, kPanel), rowsAt(1), weightsAt(kPanel)>();
  }
  // Multiplies 32 inputs in place.
  HWY_INLINE void multiplyWhole(const std::byte* x, const std::byte* w, int64_t panel_stride, int64_t stride) const {
    Unit::template load<rowsAt(0)>(x, kRowBytes);
    if constexpr (kRegisters > 1) Unit::template load<rowsAt(1)>(x + kRegisterRows * kRowBytes, kRowBytes);
    Unit::template load<weightsAt(0)>(w, stride);
    multiply<0>();
    if constexpr (kPanels > 1) {
      Unit::template load<weightsAt(1)>(w + panel_stride, stride);
      multiply<1>();
    }
  }
  // Multiplies up to 32 inputs from i on, padded with zeros.
  HWY_INLINE void multiplyCut(int64_t i) const {
    Buffer buffer;
    gatherRows<Unit, kRows>(args, i, 0, rowsOf(0), buffer);
    Unit::template load<rowsAt(0)>(&buffer, kRowBytes);
    if constexpr (kRegisters > 1) {
      gatherRows<Unit, kRows>(args, i, kRegisterRows, rowsOf(1), buffer);
      Unit::template load<rowsAt(1)>(&buffer, kRowBytes);
    }
    const std::byte* w = panels + i / 2 * args.input_stride;
    gatherWeights<Unit>(w, args.input_stride, args.inputs - i, buffer);
    Unit::template load<weightsAt(0)>(&buffer, kRowBytes);
    multiply<0>();
    if constexpr (kPanels > 1) {
      gatherWeights<Unit>(w + args.panel_stride, args.input_stride, args.inputs - i, buffer);
      Unit::template load<weightsAt(1)>(&buffer, kRowBytes);
      multiply<1>();
    }
  }
  HWY_INLINE void run(LineQueue& queue) const {
    // Prefetch distance in bytes. Near a panel's end, the prefetch continues in the panel that is taken after this
    // block.
    constexpr int64_t kAhead = 2048;
    loadSums<0, 0>();
    if constexpr (kPanels > 1) loadSums<0, 1>();
    if constexpr (kRegisters > 1) loadSums<1, 0>();
    if constexpr (kRegisters > 1 && kPanels > 1) loadSums<1, 1>();
    // The compiler must assume that the instructions which load registers change any memory. Values that stay the same
    // are therefore copied to local variables.
    const int64_t stride = args.input_stride, panel_stride = args.panel_stride;
    const int64_t whole = args.x_piece == 0 ? args.inputs / kBlockInputs * kBlockInputs : 0;
    const int64_t panel_end = args.inputs / 2 * stride;
    const bool stream = args.stream;
    const int64_t x_stride = args.x_stride == 0 ? kRows * kRowBytes : args.x_stride;
    const auto* x = static_cast<const std::byte*>(args.x);
    const std::byte* w = panels;
    for (int64_t i = 0; i < whole; i += kBlockInputs, x += x_stride, w += kRegisterRows * stride) {
      queue.take(static_cast<int>(kBlockInputs / 4));
      if (stream) {
        const std::byte* ahead = w + kAhead;
        if (ahead - panels >= panel_end) ahead += (kPanels - 1) * panel_stride;
        for (int p = 0; p < kPanels; ++p, ahead += panel_stride) {
          for (int line = 0; line < kRegisterRows; ++line) __builtin_prefetch(ahead + line * stride);
        }
      }
      multiplyWhole(x, w, panel_stride, stride);
    }
    for (int64_t i = whole; i < args.inputs; i += kBlockInputs) multiplyCut(i);
    storeSums<0, 0>();
    if constexpr (kPanels > 1) storeSums<0, 1>();
    if constexpr (kRegisters > 1) storeSums<1, 0>();
    if constexpr (kRegisters > 1 && kPanels > 1) storeSums<1, 1>();
  }
};

// Products with B of a LoRA term, whose inputs are packed in pieces. For few rows and inputs, gathering the pieces for
// the tile registers would take longer than Unit::multiplyRow, which gives the same bits.
inline constexpr int kFewRows = 8;
inline constexpr int64_t kFewInputs = 256;

template <class Unit, int kRows>
void fewRows(const PanelArgs& args) {
  alignas(64) float x[kFewInputs];
  for (int r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < args.inputs; i += args.x_piece) {
      const auto* piece = static_cast<const std::byte*>(args.x) + (i * kRows + r * args.x_piece) * 2;
      Unit::widen(piece, std::min(args.x_piece, (args.inputs - i + 1) / 2 * 2), x + i);
    }
    Unit::multiplyRow(args, x, args.y[r]);
  }
}

template <class Unit, int kRows>
void panelProduct(const PanelArgs& args) {
  if constexpr (kRows <= kFewRows) {
    if (args.x_piece != 0 && args.inputs <= kFewInputs) return fewRows<Unit, kRows>(args);
  }
  constexpr int kMost = panelsAtOnce(kRows);
  static constexpr Palette palette = paletteOf(kRows);
  Unit::configure(args.tiles, &palette);
  LineQueueCopy queue(args.ahead);
  auto* panels = static_cast<const std::byte*>(args.panels);
  int64_t left = (args.cols + kPanelCols - 1) / kPanelCols;
  for (int64_t col = 0; left > 0;) {
    const int64_t now = std::min<int64_t>(left, kMost);
    if (now == kMost) {
      Block<Unit, kRows, kMost>{args, col, panels}.run(queue);
    } else {
      Block<Unit, kRows, 1>{args, col, panels}.run(queue);
    }
    left -= now;
    col += now * kPanelCols;
    panels += now * args.panel_stride;
  }
}

}  // namespace chorus::tiles
