// The panel kernels of int8 and int4 by AVX-512 BF16 dot products: their integers are exact in bfloat16, and inputs are
// rounded to it. See panel_int8_dot.cc.
#pragma once

#include "kernels/linear/dot_kernels-inl.h"

#if defined(__x86_64__)
CHORUS_BEGIN_DOT_CODE
namespace chorus::dot {

// Inputs of one chain of dot products, a multiple of every lane's: a longer group is cut into such runs, each added up
// as a group is. What comes next does not wait for the chain before it, on which the speed of few rows depends.
inline constexpr int64_t kRun = 128;

// Beside the accumulators stand as many registers of packed integers, and the constants that turn them into weights.
constexpr int quantisedPanelsAtOnce(int rows) { return rows <= 4 ? 4 : rows <= 8 ? 3 : 2; }

// Of every lane. (The plain intrinsic starts from an undefined value, which GCC 12 warns of.)
HWY_INLINE __m512i shiftedRight(__m512i lanes, unsigned bits) { return _mm512_maskz_srli_epi32(0xffff, lanes, bits); }

// A format turns packed integers, 16 lanes of a panel, into bfloat16: pair k holds inputs 2 k and 2 k + 1.
struct Int8Lanes {
  static constexpr int kPairs = 2;
  // Masked out where it stands, integer + 128 is the fraction of a float whose exponent is such that one subtraction
  // leaves the integer, exactly: the upper half of that float. A fraction holds two of a lane's four.
  static HWY_INLINE __m512i integer(__m512i lanes, int mask, float one) {
    constexpr int kAndOr = 0xea;  // a & b | c
    const __m512i bits =
        _mm512_ternarylogic_epi32(lanes, _mm512_set1_epi32(mask), _mm512_castps_si512(_mm512_set1_ps(one)), kAndOr);
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(one + 128)));
  }
  template <int kPair>
  static HWY_INLINE __m512bh pair(const std::byte* at) {
    __m512i lanes = _mm512_loadu_si512(at);
    if constexpr (kPair == 1) lanes = shiftedRight(lanes, 16);
    const __m512i even = integer(lanes, 0xff, 0x1p23f), odd = integer(lanes, 0xff00, 0x1p15f);
    // The upper halves of `even` in place of the lower ones of `odd`.
    const __m512i upper = _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return reinterpret_cast<__m512bh>(_mm512_mask_shuffle_epi8(odd, 0x3333333333333333u, even, upper));
  }
};

struct Int4Lanes {
  static constexpr int kPairs = 4;
  // A table of all integers, twice: an index is the lowest five bits of a lane's half, of which the integer is four.
  template <int kPair>
  static HWY_INLINE __m512bh pair(const std::byte* at) {
    __m512i lanes = _mm512_loadu_si512(at);
    if constexpr (kPair > 0) lanes = shiftedRight(lanes, 4 * kPair);
    const __m512i table =
        _mm512_setr_epi64(bits(-8, -7, -6, -5), bits(-4, -3, -2, -1), bits(0, 1, 2, 3), bits(4, 5, 6, 7),
                          bits(-8, -7, -6, -5), bits(-4, -3, -2, -1), bits(0, 1, 2, 3), bits(4, 5, 6, 7));
    return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(lanes, table));
  }

 private:
  static constexpr int64_t bits(float a, float b, float c, float d) {
    uint64_t all = 0;
    for (const float value : {d, c, b, a}) all = all << 16 | __builtin_bit_cast(uint32_t, value) >> 16;
    return static_cast<int64_t>(all);
  }
};

HWY_INLINE __m512 loadScales(const std::byte* at, DType dtype) {
  if (dtype == DType::kFloat32) return _mm512_loadu_ps(at);
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  if (dtype == DType::kFloat16) return _mm512_maskz_cvtph_ps(0xffff, halves);
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, halves), 16));
}

// The first kCount pairs at `at` in kPanels panels.
template <class Lanes, int kCount, int kRows, int kPanels>
HWY_INLINE void multiplyLanes(const std::byte* panels, int64_t stride, const std::byte* x,
                              __m512 (&sum)[kRows][kPanels]) {
  const auto pair = [&]<int kPair>(std::integral_constant<int, kPair>) __attribute__((always_inline)) {
    __m512bh w[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) w[p] = Lanes::template pair<kPair>(panels + p * stride);
    const std::byte* at = x + kPair / 2 * 8 * kRows + kPair % 2 * 4;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512bh xr = broadcast(at + 8 * r);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_dpbf16_ps(sum[r][p], xr, w[p]);
    }
  };
  [&]<int... kPair>(std::integer_sequence<int, kPair...>) __attribute__((always_inline)) {
    (pair(std::integral_constant<int, kPair>{}), ...);
  }(std::make_integer_sequence<int, kCount>());
}

// kPanels panels from column col on. Even one row is prefetched for: what turns integers into weights leaves the core
// too little room to look ahead, over several streams at that.
template <class Lanes, int kRows, int kPanels>
HWY_INLINE void quantisedBlock(const PanelArgs& args, int64_t col, const std::byte*& next) {
  constexpr int64_t kInputs = 2 * Lanes::kPairs;
  constexpr int64_t kNear = 2048, kFar = 8192;
  Accumulators<kRows, kPanels> total;
  if (args.accumulate) {
    total.load(args, col);
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) total.sum[r][p] = _mm512_setzero_ps();
    }
  }
  const int64_t scale_bytes = kPanelCols * (args.scale_dtype == DType::kFloat32 ? 4 : 2);
  const auto* at = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
  const std::byte* near_end = at + std::max<int64_t>(0, args.panel_stride - kNear);
  const std::byte* far_end = at + std::max<int64_t>(0, args.panel_stride - kFar);
  const auto* x = static_cast<const std::byte*>(args.x);
  const auto prefetch = [&]() __attribute__((always_inline)) {
    if (!args.stream) return;
    // Near a panel's end its stream goes on in the panel that will be taken after this block.
    const std::byte* near = at + kNear + (at < near_end ? 0 : (kPanels - 1) * args.panel_stride);
    const std::byte* far = at + kFar + (at < far_end ? 0 : (kPanels - 1) * args.panel_stride);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm_prefetch(near + p * args.panel_stride, _MM_HINT_T0);
      _mm_prefetch(far + p * args.panel_stride, _MM_HINT_T1);
    }
  };
  for (int64_t group = 0; group < args.inputs; group += args.group) {
    const std::byte* scales = at;
    at += scale_bytes;
    const int64_t group_end = std::min(group + args.group, args.inputs);
    for (int64_t run = group; run < group_end; run += kRun) {
      __m512 sum[kRows][kPanels];
      for (int r = 0; r < kRows; ++r) {
        for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_setzero_ps();
      }
      int64_t left = std::min(kRun, group_end - run);
      for (; left >= kInputs; left -= kInputs, at += 64, x += 2 * kInputs * kRows) {
        for (int line = 0; line < args.next_lines * (kInputs / 4); ++line, next += 64) _mm_prefetch(next, _MM_HINT_T1);
        prefetch();
        multiplyLanes<Lanes, Lanes::kPairs>(at, args.panel_stride, x, sum);
      }
      if (left > 0) {
        // Of the last lane, pairs that the tile has: its last quad is padded with zeros.
        if (left <= 2) multiplyLanes<Lanes, 1>(at, args.panel_stride, x, sum);
        if constexpr (Lanes::kPairs == 2) {
          if (left > 2) multiplyLanes<Lanes, 2>(at, args.panel_stride, x, sum);
        } else {
          if (left > 2 && left <= 4) multiplyLanes<Lanes, 2>(at, args.panel_stride, x, sum);
          if (left > 4 && left <= 6) multiplyLanes<Lanes, 3>(at, args.panel_stride, x, sum);
          if (left > 6) multiplyLanes<Lanes, 4>(at, args.panel_stride, x, sum);
        }
        at += 64;
        x += (left + 3) / 4 * 8 * kRows;
      }
      for (int p = 0; p < kPanels; ++p) {
        const __m512 scale = loadScales(scales + p * args.panel_stride, args.scale_dtype);
        for (int r = 0; r < kRows; ++r) total.sum[r][p] = _mm512_fmadd_ps(scale, sum[r][p], total.sum[r][p]);
      }
    }
  }
  total.store(args, col);
}

template <class Lanes, int kRows>
void quantisedProduct(const PanelArgs& args) {
  constexpr int kMost = quantisedPanelsAtOnce(kRows);
  auto* next = static_cast<const std::byte*>(args.next);
  int64_t left = (args.cols + kPanelCols - 1) / kPanelCols;
  for (int64_t col = 0; left > 0;) {
    // Four as two and two rather than three and one.
    const int64_t now = left >= kMost && (kMost != 3 || left != 4) ? kMost : std::min<int64_t>(left, 2);
    if (now == kMost) {
      quantisedBlock<Lanes, kRows, kMost>(args, col, next);
    } else if (now == 2) {
      quantisedBlock<Lanes, kRows, 2>(args, col, next);
    } else {
      quantisedBlock<Lanes, kRows, 1>(args, col, next);
    }
    left -= now;
    col += now * kPanelCols;
  }
}

template <class Lanes, int... kRows>
constexpr PanelKernels makeQuantisedKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  kernels.pack = &packTile;
  kernels.element_bytes = 2;
  ((kernels.run[kRows + 1] = &quantisedProduct<Lanes, kRows + 1>), ...);
  for (int rows = 1; rows <= kTileRows; ++rows) kernels.passes[rows] = 1;
  kernels.scale_columns = &scaleColumns;
  return kernels;
}

template <class Lanes>
const PanelKernels* quantisedKernels() {
  static constexpr PanelKernels kernels = makeQuantisedKernels<Lanes>(std::make_integer_sequence<int, kTileRows>());
  return &kernels;
}

}  // namespace chorus::dot
CHORUS_END_DOT_CODE
#endif
