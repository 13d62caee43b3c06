// The products of attention over a bfloat16 cache by AMX. The template parameter Unit provides the tile registers: the
// processor's (products_bf16_tile.cc) or, in tests, arrays. Templates get the target attributes that the including file
// sets. Everything is a template of Unit, so that no two files share compiled code.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/attention/products.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/linear/tile_kernels-inl.h"

namespace chorus::tiles::attention {

static_assert(kTileRows <= kAttentionTileRows);
inline constexpr int64_t kPanelBytes = kPanelCols * 4;

// The numbers of the registers for tiles of kRows rows. The rows take one register or two; with two, each register of
// weights is used twice. There are four accumulators, which hide the latency of a product. The weights use the
// remaining registers in turn, so that one is loaded while others are multiplied.
template <int kRows>
struct Registers {
  static constexpr int kRowRegisters = registersOf(kRows);
  static constexpr int kPanels = 4 / kRowRegisters;  // panels that are multiplied at a time
  static constexpr int sumsAt(int reg, int panel) { return reg * kPanels + panel; }
  static constexpr int rowsAt(int reg) { return 4 + reg; }
  static constexpr int weightsAt(int panel) { return 4 + kRowRegisters + panel % (4 - kRowRegisters); }
  // Number of the tile's rows in a register.
  static constexpr int rowsOf(int reg) { return std::min(kRegisterRows, kRows - reg * kRegisterRows); }

  static constexpr Palette palette() {
    Palette palette;
    for (int i = 0; i < 8; ++i) {
      palette.row_bytes[i] = kRowBytes;
      palette.rows[i] = kRegisterRows;
    }
    for (int r = 0; r < kRowRegisters; ++r) {
      palette.rows[rowsAt(r)] = static_cast<uint8_t>(rowsOf(r));
      for (int p = 0; p < kPanels; ++p) palette.rows[sumsAt(r, p)] = static_cast<uint8_t>(rowsOf(r));
    }
    return palette;
  }
};

// Copies the first `left` inputs at w, fewer than a register holds, and pads them with zeros. The second half of an odd
// last pair and the memory after it may hold anything.
template <class Unit>
HWY_INLINE void gatherInputs(const std::byte* w, int64_t stride, int64_t left, Buffer& buffer) {
  std::memset(&buffer, 0, sizeof buffer);
  for (int64_t pair = 0; pair < left / 2; ++pair) std::memcpy(buffer.row(pair), w + pair * stride, kRowBytes);
  if (left % 2 == 0) return;
  const std::byte* last = w + left / 2 * stride;
  for (int64_t c = 0; c < kPanelCols; ++c) std::memcpy(buffer.row(left / 2) + 4 * c, last + 4 * c, 2);
}

template <class Unit, int kRows, int kCount, int kPanel = 0>
HWY_INLINE void zeroSums() {
  using R = Registers<kRows>;
  Unit::template zero<R::sumsAt(0, kPanel)>();
  if constexpr (R::kRowRegisters > 1) Unit::template zero<R::sumsAt(1, kPanel)>();
  if constexpr (kPanel + 1 < kCount) zeroSums<Unit, kRows, kCount, kPanel + 1>();
}

// Multiplies the inputs of one register, from w on, by the rows that are loaded.
template <class Unit, int kRows, int kCount, int kPanel = 0>
HWY_INLINE void multiplyPanels(const std::byte* w, int64_t stride, int64_t left, const std::byte*& next) {
  using R = Registers<kRows>;
  if (next != nullptr) {
    const int64_t lines = std::min<int64_t>(kRegisterRows, (left + 1) / 2);
    for (int64_t line = 0; line < lines; ++line, next += 64) __builtin_prefetch(next, 0, 2);
  }
  constexpr int kWeights = R::weightsAt(kPanel);
  if (left >= kBlockInputs) {
    Unit::template load<kWeights>(w, stride);
  } else {
    Buffer buffer;
    gatherInputs<Unit>(w, stride, left, buffer);
    Unit::template load<kWeights>(&buffer, kRowBytes);
  }
  Unit::template multiplyBf16<R::sumsAt(0, kPanel), R::rowsAt(0), kWeights>();
  if constexpr (R::kRowRegisters > 1) Unit::template multiplyBf16<R::sumsAt(1, kPanel), R::rowsAt(1), kWeights>();
  if constexpr (kPanel + 1 < kCount) {
    multiplyPanels<Unit, kRows, kCount, kPanel + 1>(w + kPanelBytes, stride, left, next);
  }
}

template <class Unit, int kRows, int kCount, int kReg, int kPanel = 0>
HWY_INLINE void storeSums(float* y, int64_t y_stride) {
  Unit::template store<Registers<kRows>::sumsAt(kReg, kPanel)>(y, y_stride * static_cast<int64_t>(sizeof(float)));
  if constexpr (kPanel + 1 < kCount) storeSums<Unit, kRows, kCount, kReg, kPanel + 1>(y + kPanelCols, y_stride);
}

// Computes kCount panels from panel `first` on.
template <class Unit, int kRows, int kCount>
HWY_INLINE void panels(const AttentionProduct& args, int64_t first) {
  using R = Registers<kRows>;
  constexpr int64_t kRunBytes = kAttentionRun * 2;
  zeroSums<Unit, kRows, kCount>();
  const auto* x = static_cast<const std::byte*>(args.x);
  for (int64_t piece = 0; piece * kAttentionRun < args.inputs; ++piece, x += args.x_stride) {
    const std::byte* w = args.w[piece] + first * kPanelBytes;
    const int64_t some = std::min<int64_t>(kAttentionRun, args.inputs - piece * kAttentionRun);
    const std::byte* next = args.next == nullptr ? nullptr : args.next[piece];
    if (next != nullptr) next += first * ((some + 1) / 2) * kPanelBytes;
    for (int64_t i = 0; i < some; i += kBlockInputs, w += kRegisterRows * args.input_stride) {
      Unit::template load<R::rowsAt(0)>(x + i * 2, kRunBytes);
      if constexpr (R::kRowRegisters > 1) {
        Unit::template load<R::rowsAt(1)>(x + i * 2 + kRegisterRows * kRunBytes, kRunBytes);
      }
      multiplyPanels<Unit, kRows, kCount>(w, args.input_stride, some - i, next);
    }
  }
  float* y = args.y + first * kPanelCols;
  storeSums<Unit, kRows, kCount, 0>(y, args.y_stride);
  if constexpr (R::kRowRegisters > 1) {
    storeSums<Unit, kRows, kCount, 1>(y + kRegisterRows * args.y_stride, args.y_stride);
  }
}

template <class Unit, int kRows>
void product(const AttentionProduct& args) {
  static constexpr Palette palette = Registers<kRows>::palette();
  constexpr int kPanels = Registers<kRows>::kPanels;
  Unit::configure(args.tiles, &palette);
  int64_t panel = 0;
  for (; panel + kPanels <= args.panels; panel += kPanels) panels<Unit, kRows, kPanels>(args, panel);
  for (; panel < args.panels; ++panel) panels<Unit, kRows, 1>(args, panel);
}

template <class Unit, int... kRows>
constexpr AttentionProducts makeProducts(std::integer_sequence<int, kRows...>) {
  AttentionProducts products;
  products.max_rows = kTileRows;
  products.pack = &Unit::pack;
  products.element_bytes = 2;
  ((products.run[kRows + 1] = &product<Unit, kRows + 1>), ...);
  return products;
}

template <class Unit>
inline constexpr AttentionProducts kProducts = makeProducts<Unit>(std::make_integer_sequence<int, kTileRows>());

}  // namespace chorus::tiles::attention
