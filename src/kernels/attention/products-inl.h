// The products of attention for one type of the cache, compiled once for each instruction set. The including file only
// names the format: see products_bf16.cc.
#if defined(CHORUS_ATTENTION_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_ATTENTION_PRODUCTS_INL
#undef CHORUS_ATTENTION_PRODUCTS_INL
#else
#define CHORUS_ATTENTION_PRODUCTS_INL
#endif

#include <algorithm>
#include <type_traits>
#include <utility>

#include "kernels/attention/products.h"
#include "kernels/linear/panel_kernels-inl.h"
#include "kernels/linear/panel_layout.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace attention {

static_assert(kTileRows <= kAttentionTileRows);

// Bytes of one column of an input, or of an input pair.
template <class Format>
constexpr int64_t kColumnBytes = std::is_same_v<Format, Float16Panels> ? 2 : 4;

// Computes kPanels panels from column `col` on.
template <class Format, int kRows, int kPanels>
HWY_INLINE void panels(const AttentionProduct& args, int64_t col) {
  constexpr int kWidth = kPanels * kVectors;
  constexpr int64_t kPanelBytes = kPanelCols * kColumnBytes<Format>;
  constexpr int64_t kPairBytes = kPanels * kPanelBytes * 2 / Format::kInputsPerStride;  // of two inputs
  const int64_t stride = args.input_stride;
  VF sum[kRows][kWidth];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kWidth; ++v) sum[r][v] = hn::Zero(F32());
  }
  for (int64_t piece = 0; piece * kAttentionRun < args.inputs; ++piece) {
    const auto* x = reinterpret_cast<const float*>(static_cast<const std::byte*>(args.x) + piece * args.x_stride);
    const std::byte* w = args.w[piece] + col * kColumnBytes<Format>;
    const int64_t some = std::min<int64_t>(kAttentionRun, args.inputs - piece * kAttentionRun);
    const std::byte* next = args.next == nullptr ? nullptr : args.next[piece];
    if (next != nullptr) next += col / kPanelCols * (some / 2) * kPanelBytes * 2 / Format::kInputsPerStride;
    VF even[kWidth], odd[kWidth];
    int64_t i = 0;
    for (; i + 1 < some; i += 2) {
      if (next != nullptr) {
        for (int64_t at = 0; at < kPairBytes; at += 64) __builtin_prefetch(next + at, 0, 2);
        next += kPairBytes;
      }
#pragma GCC unroll 16
      for (int v = 0; v < kWidth; ++v) {
        Format::load(w + v / kVectors * kPanelBytes, stride, i, v % kVectors * kLanes, even[v], odd[v]);
      }
      mulAddTile(x + i, kAttentionRun, even, sum);
      mulAddTile(x + i + 1, kAttentionRun, odd, sum);
    }
    if (i == some) continue;
    for (int v = 0; v < kWidth; ++v) {
      even[v] = Format::loadLast(w + v / kVectors * kPanelBytes, stride, i, v % kVectors * kLanes);
    }
    mulAddTile(x + i, kAttentionRun, even, sum);
  }
  float* y = args.y + col;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kWidth; ++v) hn::StoreU(sum[r][v], F32(), y + r * args.y_stride + v * kLanes);
  }
}

template <class Format, int kRows>
void product(const AttentionProduct& args) {
  constexpr int kPanels = panelsAtOnce(kRows);
  int64_t panel = 0;
  for (; panel + kPanels <= args.panels; panel += kPanels) panels<Format, kRows, kPanels>(args, panel * kPanelCols);
  if constexpr (kPanels > 1) {
    for (; panel < args.panels; ++panel) panels<Format, kRows, 1>(args, panel * kPanelCols);
  }
}

template <class Format, int... kRows>
constexpr AttentionProducts makeProducts(std::integer_sequence<int, kRows...>) {
  AttentionProducts products;
  products.max_rows = kTileRows;
  products.pack = &packAttentionTile;
  ((products.run[kRows + 1] = &product<Format, kRows + 1>), ...);
  return products;
}

template <class Format>
const AttentionProducts* formatProducts() {
  static constexpr AttentionProducts products = makeProducts<Format>(std::make_integer_sequence<int, kTileRows>());
  return &products;
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
