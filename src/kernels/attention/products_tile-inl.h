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

inline constexpr int kTileRows = kRegisterRows;
static_assert(kTileRows <= kAttentionTileRows);
// Number of panels by which a register of rows is multiplied at a time: four, because four accumulators hide the
// latency of a product.
inline constexpr int kPanels = 4;
inline constexpr int64_t kPanelBytes = kPanelCols * 4;

// Numbers of the registers: accumulators by panel, then rows, then weights. The weights use three registers in turn, so
// that one is loaded while others are multiplied.
inline constexpr int kRowsAt = kPanels;
constexpr int weightsAt(int panel) { return kRowsAt + 1 + panel % 3; }

constexpr Palette paletteOf(int rows) {
  Palette palette;
  for (int i = 0; i < 8; ++i) {
    palette.row_bytes[i] = kRowBytes;
    palette.rows[i] = static_cast<uint8_t>(i <= kRowsAt ? rows : kRegisterRows);
  }
  return palette;
}

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

template <class Unit, int kCount, int kPanel = 0>
HWY_INLINE void zeroSums() {
  Unit::template zero<kPanel>();
  if constexpr (kPanel + 1 < kCount) zeroSums<Unit, kCount, kPanel + 1>();
}

// Multiplies the inputs of one register, from w on, by the rows that are loaded.
template <class Unit, int kCount, int kPanel = 0>
HWY_INLINE void multiplyPanels(const std::byte* w, int64_t stride, int64_t left, const std::byte*& next) {
  if (next != nullptr) {
    const int64_t lines = std::min<int64_t>(kRegisterRows, (left + 1) / 2);
    for (int64_t line = 0; line < lines; ++line, next += 64) __builtin_prefetch(next, 0, 2);
  }
  if (left >= kBlockInputs) {
    Unit::template load<weightsAt(kPanel)>(w, stride);
  } else {
    Buffer buffer;
    gatherInputs<Unit>(w, stride, left, buffer);
    Unit::template load<weightsAt(kPanel)>(&buffer, kRowBytes);
  }
  Unit::template multiplyBf16<kPanel, kRowsAt, weightsAt(kPanel)>();
  if constexpr (kPanel + 1 < kCount) multiplyPanels<Unit, kCount, kPanel + 1>(w + kPanelBytes, stride, left, next);
}

template <class Unit, int kRows, int kCount, int kPanel = 0>
HWY_INLINE void addSums(const AttentionProduct& args, float* y) {
  Buffer sums;
  Unit::template store<kPanel>(&sums, kRowBytes);
  for (int r = 0; r < kRows; ++r) {
    Unit::addRow(sums.row(r), args.factors == nullptr ? nullptr : args.factors + r, y + r * args.y_stride);
  }
  if constexpr (kPanel + 1 < kCount) addSums<Unit, kRows, kCount, kPanel + 1>(args, y + kPanelCols);
}

// Computes kCount panels from panel `first` on.
template <class Unit, int kRows, int kCount>
HWY_INLINE void panels(const AttentionProduct& args, int64_t first, const std::byte*& next) {
  constexpr int64_t kRunBytes = kAttentionRun * 2;
  zeroSums<Unit, kCount>();
  const std::byte* w = args.w + first * kPanelBytes;
  for (int64_t i = 0; i < args.inputs; i += kBlockInputs, w += kRegisterRows * args.input_stride) {
    const auto* x = static_cast<const std::byte*>(args.x);
    x += i / kAttentionRun * kRows * kRunBytes + i % kAttentionRun * 2;
    Unit::template load<kRowsAt>(x, kRunBytes);
    multiplyPanels<Unit, kCount>(w, args.input_stride, args.inputs - i, next);
  }
  addSums<Unit, kRows, kCount>(args, args.y + first * kPanelCols);
}

template <class Unit, int kRows>
void product(const AttentionProduct& args) {
  static constexpr Palette palette = paletteOf(kRows);
  Unit::configure(args.tiles, &palette);
  const std::byte* next = args.next;
  int64_t panel = 0;
  for (; panel + kPanels <= args.panels; panel += kPanels) panels<Unit, kRows, kPanels>(args, panel, next);
  for (; panel < args.panels; ++panel) panels<Unit, kRows, 1>(args, panel, next);
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
