// The products of attention by AVX-512 BF16 dot products. Queries and weights are rounded to bfloat16, and denormals on
// either side count as zero. Each output is one chain over ascending input pairs.
#include "kernels/attention/products.h"
#include "kernels/linear/panel_layout.h"

#if defined(__x86_64__)
#include "kernels/linear/dot_kernels-inl.h"

CHORUS_BEGIN_DOT_CODE
namespace chorus {

void packRoundedAttentionTile(const float* const* rows, int count, int64_t inputs, void* dst) {
  auto* to = static_cast<std::byte*>(dst);
  int64_t piece = 0;
  for (; piece + kAttentionRun <= inputs; piece += kAttentionRun) {
    for (int r = 0; r < count; ++r) {
      for (int64_t i = piece; i < piece + kAttentionRun; i += 32, to += 64) {
        _mm512_storeu_si512(to, dot::roundPair(_mm512_loadu_ps(rows[r] + i), _mm512_loadu_ps(rows[r] + i + 16)));
      }
    }
  }
  if (piece == inputs) return;
  for (int r = 0; r < count; ++r) {
    for (int64_t i = piece; i < piece + kAttentionRun; i += 32, to += 64) {
      const auto some = [&](int64_t at) {
        const int64_t left = std::clamp<int64_t>(inputs - at, 0, 16);
        return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), rows[r] + (left > 0 ? at : 0));
      };
      _mm512_storeu_si512(to, dot::roundPair(some(i), some(i + 16)));
    }
  }
}

namespace {

// Chosen so that accumulators, weights and a broadcast fill the registers; at least eight accumulators hide the latency
// of a dot product. A run's keys, or the values of a head of 64, take a whole number of passes over the tile.
constexpr int kTileRows = 12;
constexpr int attentionPanels(int rows) { return rows <= 4 ? 4 : 2; }
constexpr int64_t kPanelBytes = kPanelCols * 4;

// Adds the products of one input pair of every row. kLast: the second half of the pair is undefined and is masked out.
template <bool kLast, int kRows, int kPanels>
HWY_INLINE void multiplyPair(const std::byte* x, const std::byte* w, const std::byte*& next,
                             __m512 (&sum)[kRows][kPanels]) {
  if (next != nullptr) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) _mm_prefetch(next + p * kPanelBytes, _MM_HINT_T1);
    next += kPanels * kPanelBytes;
  }
  __m512bh panel[kPanels];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    __m512i pairs = _mm512_loadu_si512(w + p * kPanelBytes);
    if (kLast) pairs = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
    panel[p] = reinterpret_cast<__m512bh>(pairs);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m512bh xr = dot::broadcast(x + r * kAttentionRun * 2);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_dpbf16_ps(sum[r][p], xr, panel[p]);
  }
}

// Computes kPanels panels from panel `first` on.
template <int kRows, int kPanels>
HWY_INLINE void panels(const AttentionProduct& args, int64_t first) {
  __m512 sum[kRows][kPanels];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  const auto* x = static_cast<const std::byte*>(args.x);
  const int64_t stride = args.input_stride;
  for (int64_t piece = 0; piece * kAttentionRun < args.inputs; ++piece, x += args.x_stride) {
    const int64_t some = std::min<int64_t>(kAttentionRun, args.inputs - piece * kAttentionRun), pairs = some / 2;
    const std::byte* w = args.w[piece] + first * kPanelBytes;
    const std::byte* next = args.next == nullptr ? nullptr : args.next[piece];
    if (next != nullptr) next += first * pairs * kPanelBytes;
    for (int64_t i = 0; i < pairs; ++i, w += stride) multiplyPair<false>(x + 4 * i, w, next, sum);
    if (some % 2 == 1) multiplyPair<true>(x + 4 * pairs, w, next, sum);
  }
  float* y = args.y + first * kPanelCols;
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) _mm512_storeu_ps(y + r * args.y_stride + p * kPanelCols, sum[r][p]);
  }
}

template <int kRows>
void product(const AttentionProduct& args) {
  constexpr int kMost = attentionPanels(kRows);
  int64_t panel = 0;
  for (; panel + kMost <= args.panels; panel += kMost) panels<kRows, kMost>(args, panel);
  for (; panel < args.panels; ++panel) panels<kRows, 1>(args, panel);
}

template <int... kRows>
constexpr AttentionProducts makeProducts(std::integer_sequence<int, kRows...>) {
  AttentionProducts products;
  products.max_rows = kTileRows;
  products.pack = &packRoundedAttentionTile;
  products.element_bytes = 2;
  ((products.run[kRows + 1] = &product<kRows + 1>), ...);
  return products;
}
}  // namespace

const AttentionProducts* bf16DotAttentionProducts() {
  static constexpr AttentionProducts products = makeProducts(std::make_integer_sequence<int, kTileRows>());
  return &products;
}

}  // namespace chorus
CHORUS_END_DOT_CODE
#endif
