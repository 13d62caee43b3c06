// The panel kernels by AVX-512 BF16 dot products, written with intrinsics (Highway has none), for formats whose weights
// can be loaded as pairs of bfloat16. The including file is compiled for every machine; call the code between the
// attributes below only if the machine has the instruction set.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#include "kernels/linear/panel_layout.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <hwy/base.h>
#include "kernels/linear/avx512_panels-inl.h"

// Templates and lambdas, too, take their target attributes from where they are defined.
#define CHORUS_BEGIN_DOT_CODE \
  HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#define CHORUS_END_DOT_CODE HWY_POP_ATTRIBUTES

CHORUS_BEGIN_DOT_CODE
namespace chorus::dot {

// Rows of a tile, and panels multiplied at once. They are chosen so that accumulators, weights and a broadcast fill the
// registers; at least eight accumulators hide the latency of a dot product. A single row is bound by memory, which is
// read fastest as a single stream.
inline constexpr int kTileRows = 12;
constexpr int panelsAtOnce(int rows) { return rows == 1 ? 1 : rows <= 4 ? 4 : rows <= 8 ? 3 : 2; }

// Rounds two vectors of 16 floats to bfloat16, to nearest even; `first` is in the lower half of the result.
HWY_INLINE __m512i roundPair(__m512 first, __m512 second) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
}

// Transposes an 8 x 8 matrix of quads (64 bits each).
HWY_INLINE void transpose(__m512i (&rows)[8]) {
  __m512i pairs[8];  // pairs[i] and pairs[i + 1], i even: the even and the odd quads of rows i and i + 1
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
#pragma GCC unroll 2
  for (int odd = 0; odd < 2; ++odd) {
    const __m512i low0 = __builtin_shufflevector(pairs[odd], pairs[odd + 2], 0, 1, 4, 5, 8, 9, 12, 13);
    const __m512i high0 = __builtin_shufflevector(pairs[odd], pairs[odd + 2], 2, 3, 6, 7, 10, 11, 14, 15);
    const __m512i low1 = __builtin_shufflevector(pairs[odd + 4], pairs[odd + 6], 0, 1, 4, 5, 8, 9, 12, 13);
    const __m512i high1 = __builtin_shufflevector(pairs[odd + 4], pairs[odd + 6], 2, 3, 6, 7, 10, 11, 14, 15);
    rows[odd] = __builtin_shufflevector(low0, low1, 0, 1, 4, 5, 8, 9, 12, 13);
    rows[odd + 2] = __builtin_shufflevector(high0, high1, 0, 1, 4, 5, 8, 9, 12, 13);
    rows[odd + 4] = __builtin_shufflevector(low0, low1, 2, 3, 6, 7, 10, 11, 14, 15);
    rows[odd + 6] = __builtin_shufflevector(high0, high1, 2, 3, 6, 7, 10, 11, 14, 15);
  }
}

// PanelKernels::pack for bfloat16: quad q (four inputs) of row r is the 8 bytes at index q * count + r.
inline void packTile(const float* const* rows, int count, int64_t inputs, void* tile) {
  constexpr int64_t kPackAhead = 96;  // floats
  const auto cut = [inputs](const float* row, int64_t i) {
    const int64_t left = std::clamp<int64_t>(inputs - i, 0, 16);
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << left) - 1), row + (left > 0 ? i : 0));
  };
  for (int64_t i = 0; i < inputs; i += 32) {
    const int64_t quads = std::min<int64_t>(8, (inputs - i + 3) / 4);
    auto* dst = static_cast<uint64_t*>(tile) + i / 4 * count;
    if (count == 1) {
      const __m512i bits = roundPair(cut(rows[0], i), cut(rows[0], i + 16));
      _mm512_mask_storeu_epi64(dst, static_cast<__mmask8>((1u << quads) - 1), bits);
      continue;
    }
    for (int first = 0; first < count; first += 8) {
      const int some = std::min(8, count - first);
      __m512i bits[8] = {};
      for (int r = 0; r < some; ++r) {
        // The hardware prefetchers do not follow this many rows.
        _mm_prefetch(rows[first + r] + i + kPackAhead, _MM_HINT_T0);
        _mm_prefetch(rows[first + r] + i + kPackAhead + 16, _MM_HINT_T0);
        bits[r] = roundPair(cut(rows[first + r], i), cut(rows[first + r], i + 16));
      }
      transpose(bits);
      const auto mask = static_cast<__mmask8>((1u << some) - 1);
      for (int64_t q = 0; q < quads; ++q) _mm512_mask_storeu_epi64(dst + q * count + first, mask, bits[q]);
    }
  }
}

// Broadcasts the input pair at x. In a tile, the pair of row r is at byte 8 * r.
HWY_INLINE __m512bh broadcast(const std::byte* x) {
  int pair;
  std::memcpy(&pair, x, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

// Prefetch distances in bytes, into L1 and into L2.
struct Ahead {
  int64_t near = 0, far = 0;
};
// Whether the kernel prefetches weights. For few rows, the hardware prefetchers alone are fastest. For more rows, the
// products take as long as the memory accesses, and the core does not look far enough ahead.
constexpr bool prefetches(int rows) { return rows > 4; }
inline constexpr int64_t kNear = 1024, kFar = 4096;

// Multiplies one input pair of kPanels panels.
template <class Format, bool kPrefetch, int kRows, int kPanels>
HWY_INLINE void multiplyPair(const PanelArgs& args, const std::byte* panels, int64_t i, const Ahead& ahead,
                             const std::byte* x, __m512 (&sum)[kRows][kPanels]) {
  __m512bh w[kPanels];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const std::byte* panel = panels + p * args.panel_stride;
    if (kPrefetch) {
      _mm_prefetch(Format::at(panel + ahead.near, args.input_stride, i), _MM_HINT_T0);
      _mm_prefetch(Format::at(panel + ahead.far, args.input_stride, i), _MM_HINT_T1);
    }
    w[p] = Format::load(panel, args.input_stride, i);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m512bh xr = broadcast(x + 8 * r);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_dpbf16_ps(sum[r][p], xr, w[p]);
  }
}

// Multiplies inputs [begin, end) of kPanels panels, a whole number of quads (four inputs).
template <class Format, bool kPrefetch, int kRows, int kPanels>
HWY_INLINE void multiplyQuads(const PanelArgs& args, const std::byte* panels, int64_t begin, int64_t end,
                              const Ahead& ahead, LineQueue& queue, __m512 (&sum)[kRows][kPanels]) {
  const std::byte* x = static_cast<const std::byte*>(args.x) + begin * 2 * kRows;
  for (int64_t i = begin; i < end; i += 4, x += 8 * kRows) {
    queue.take(1);
    multiplyPair<Format, kPrefetch, kRows, kPanels>(args, panels, i, ahead, x, sum);
    multiplyPair<Format, kPrefetch, kRows, kPanels>(args, panels, i + 2, ahead, x + 4, sum);
  }
}

// Computes kPanels panels from column `col` on.
template <class Format, int kRows, int kPanels>
HWY_INLINE void panelBlock(const PanelArgs& args, int64_t col, LineQueue& queue) {
  avx512::Accumulators<kRows, kPanels> acc;
  if (args.accumulate) {
    acc.load(args, col);
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) acc.sum[r][p] = _mm512_setzero_ps();
    }
  }
  const std::byte* panels = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
  const int64_t quads_end = args.inputs / 4 * 4;
  if (prefetches(kRows) && args.stream) {
    // Near a panel's end, the prefetch continues in the panel that is taken after this block.
    const auto before = [&](int64_t bytes) {
      return std::max<int64_t>(0, quads_end - bytes / args.input_stride * Format::kInputsPerStride) / 4 * 4;
    };
    const int64_t ends[] = {0, before(kFar), before(kNear), quads_end};
    Ahead ahead{kNear, kFar};
    for (int stretch = 0; stretch < 3; ++stretch) {
      multiplyQuads<Format, prefetches(kRows), kRows, kPanels>(args, panels, ends[stretch], ends[stretch + 1], ahead,
                                                               queue, acc.sum);
      (stretch == 0 ? ahead.far : ahead.near) += (kPanels - 1) * args.panel_stride;
    }
  } else {
    multiplyQuads<Format, false, kRows, kPanels>(args, panels, 0, quads_end, {}, queue, acc.sum);
  }
  // The tile's last quad and the weights' last pair are padded with zeros.
  const std::byte* x = static_cast<const std::byte*>(args.x) + quads_end * 2 * kRows;
  for (int64_t i = quads_end; i < args.inputs; i += 2, x += 4) {
    multiplyPair<Format, false, kRows, kPanels>(args, panels, i, {}, x, acc.sum);
  }
  acc.store(args, col);
}

template <class Format, int kRows>
void panelProduct(const PanelArgs& args) {
  constexpr int kMost = panelsAtOnce(kRows);
  LineQueueCopy queue(args.ahead);
  int64_t left = (args.cols + kPanelCols - 1) / kPanelCols;
  for (int64_t col = 0; left > 0;) {
    // Takes the last four panels as two and two instead of three and one.
    const int64_t now = left >= kMost && (kMost != 3 || left != 4) ? kMost : std::min<int64_t>(left, 2);
    if (now == kMost) {
      panelBlock<Format, kRows, kMost>(args, col, queue);
    } else if (now == 2) {
      panelBlock<Format, kRows, 2>(args, col, queue);
    } else {
      panelBlock<Format, kRows, 1>(args, col, queue);
    }
    left -= now;
    col += now * kPanelCols;
  }
}

template <class Format, int... kRows>
constexpr PanelKernels makeKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  kernels.pack = &packTile;
  kernels.element_bytes = 2;
  ((kernels.run[kRows + 1] = &panelProduct<Format, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / std::min(kPanelsInTurn, panelsAtOnce(kRows + 1))), ...);
  kernels.scale_columns = &avx512::scaleColumns;
  return kernels;
}

template <class Format>
const PanelKernels* formatKernels() {
  static constexpr PanelKernels kernels = makeKernels<Format>(std::make_integer_sequence<int, kTileRows>());
  return &kernels;
}

}  // namespace chorus::dot
CHORUS_END_DOT_CODE
#endif
