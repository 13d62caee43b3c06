// The panel kernels of int8 and int4 by AVX-512 VNNI: products of the stored integers and fixed-point inputs, see
// fixed_point.h. The including file is compiled for every machine; call the code between the attributes below only if
// the machine has the instruction set.
#pragma once

#include "kernels/linear/fixed_pack-inl.h"
#include "kernels/linear/panel_layout.h"

#if defined(__x86_64__)
#include <cstring>
#include <utility>

#define CHORUS_BEGIN_VNNI_CODE \
  HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")
#define CHORUS_END_VNNI_CODE HWY_POP_ATTRIBUTES

CHORUS_BEGIN_VNNI_CODE
namespace chorus::vnni {

// Rows of a tile, and panels multiplied at once. They are chosen so that the accumulators of all digits, weights and
// broadcasts fill the registers; at least four accumulators hide the latency of a product.
inline constexpr int kTileRows = 12;
template <int kDigits>
constexpr int panelsAtOnce(int rows) {
  if (kDigits == 1) return rows <= 5 ? 4 : rows == 6 ? 3 : 2;
  return rows <= 3 ? 4 : rows == 4 ? 3 : rows <= 6 ? 2 : 1;
}

// A format splits the integers of a lane into kProducts operands of four integers each.
struct Int8Lanes {
  static constexpr DType kType = DType::kInt8;
  static constexpr int kProducts = 1;
  template <int kProduct>
  static HWY_INLINE __m512i weights(__m512i lanes) {
    return lanes;
  }
};
struct Int4Lanes {
  static constexpr DType kType = DType::kInt4;
  static constexpr int kProducts = 2;
  template <int kProduct>
  static HWY_INLINE __m512i weights(__m512i lanes) {
    // Masked because the plain intrinsic starts from an undefined value, about which GCC 12 warns.
    if constexpr (kProduct > 0) lanes = _mm512_maskz_srli_epi32(0xffff, lanes, 4);
    return _mm512_and_si512(lanes, _mm512_set1_epi32(0x0f0f0f0f));
  }
};

// multiplyAdd is sum + w . four digits. It is written in assembly because GCC 12 copies the sums around its intrinsic
// and does not give it a broadcast operand.
struct Four {
  int8_t digits[4];
};
HWY_INLINE __m512i broadcast(const int8_t* digits) {
  __m512i all;
  __asm__("vpbroadcastd %1, %0" : "=v"(all) : "m"(*reinterpret_cast<const Four*>(digits)));
  return all;
}
HWY_INLINE __m512i multiplyAdd(__m512i sum, __m512i w, __m512i digits) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(digits));
  return sum;
}
HWY_INLINE __m512i multiplyAdd(__m512i sum, __m512i w, const int8_t* digits) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const Four*>(digits)));
  return sum;
}

// Accumulators of the products of every digit.
template <int kDigits, int kRows, int kPanels>
struct Sums {
  __m512i digit[kDigits][kRows][kPanels];

  HWY_INLINE void start(int row, int32_t correction) {
    for (int p = 0; p < kPanels; ++p) {
      digit[0][row][p] = _mm512_setzero_si512();
      digit[kDigits - 1][row][p] = _mm512_set1_epi32(correction);
    }
  }
};

// Multiplies the inputs of one lane of kPanels panels.
template <class Lanes, int kDigits, int kUnit, int kRows, int kPanels>
HWY_INLINE void multiplyLanes(const std::byte* at, int64_t stride, const FixedDigits<kDigits, kUnit>* x, int64_t input,
                              Sums<kDigits, kRows, kPanels>& sums) {
  __m512i lanes[kPanels];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) lanes[p] = _mm512_loadu_si512(at + p * stride);
  const auto product = [&]<int kProduct>(std::integral_constant<int, kProduct>) __attribute__((always_inline)) {
    __m512i w[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) w[p] = Lanes::template weights<kProduct>(lanes[p]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int d = 0; d < kDigits; ++d) {
        const int8_t* digits = x[r].digit[d] + input + 4 * kProduct;
        __m512i(&sum)[kPanels] = sums.digit[d][r];
        if constexpr (kPanels == 1) {
          sum[0] = multiplyAdd(sum[0], w[0], digits);
        } else {
          const __m512i all = broadcast(digits);
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) sum[p] = multiplyAdd(sum[p], w[p], all);
        }
      }
    }
  };
  product(std::integral_constant<int, 0>{});
  if constexpr (Lanes::kProducts > 1) product(std::integral_constant<int, 1>{});
}

// Computes kPanels panels from column `col` on.
template <class Lanes, int kDigits, bool kPerToken, int kRows, int kPanels>
HWY_INLINE void quantisedBlock(const PanelArgs& args, int64_t col, LineQueue& queue) {
  constexpr int kUnit = kFixedUnit<kPerToken>;
  using Digits = FixedDigits<kDigits, kUnit>;
  constexpr int64_t kInputs = 4 * Lanes::kProducts;
  constexpr int64_t kNear = 2048, kFar = 8192;
  avx512::Accumulators<kRows, kPanels> total;
  if (args.accumulate) {
    total.load(args, col);
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) total.sum[r][p] = _mm512_setzero_ps();
    }
  }
  const int64_t stride = args.panel_stride, group = args.group, inputs = args.inputs;
  const int64_t scale_bytes = kPerToken ? kTokenScaleBytes : kPanelCols * (args.scale_dtype == DType::kFloat32 ? 4 : 2);
  const auto* at = static_cast<const std::byte*>(args.panels) + col / kPanelCols * stride;
  const std::byte* near_end = at + std::max<int64_t>(0, stride - kNear);
  const std::byte* far_end = at + std::max<int64_t>(0, stride - kFar);
  const bool stream = args.stream;
  const auto prefetch = [&]() __attribute__((always_inline)) {
    if (!stream) {
      // Several tiles take these panels in turn, so that they are in L2.
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) _mm_prefetch(at + p * stride + 1024, _MM_HINT_T0);
      return;
    }
    // Near a panel's end, the prefetch continues in the panel that is taken after this block.
    const std::byte* near = at + kNear + (at < near_end ? 0 : (kPanels - 1) * stride);
    const std::byte* far = at + kFar + (at < far_end ? 0 : (kPanels - 1) * stride);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm_prefetch(near + p * stride, _MM_HINT_T0);
      _mm_prefetch(far + p * stride, _MM_HINT_T1);
    }
  };
  const int64_t run = std::min<int64_t>(group, kUnit);
  const std::byte* scales = at;
  const auto* x = static_cast<const std::byte*>(args.x);
  const TokenRun* tokens = kPerToken ? tokenRuns<Digits>(args.x, kRows, inputs) : nullptr;
  Sums<kDigits, kRows, kPanels> sums;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sums.start(r, kPerToken ? tokens[r].correction : 0);
  for (int64_t i = 0; i < inputs; i += kUnit, x += kRows * kFixedBytes<Digits, kPerToken>) {
    const auto* digits = reinterpret_cast<const Digits*>(x);
    const auto* runs = reinterpret_cast<const FixedRuns*>(digits + kRows);
    const int64_t end = std::min<int64_t>(inputs - i, kUnit);
    for (int64_t begin = 0, n = 0; begin < end; begin += run, ++n) {
      if (kPerToken ? i == 0 : (i + begin) % group == 0) {
        scales = at;
        at += scale_bytes;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows && !kPerToken; ++r) sums.start(r, runs[r].correction[n]);
      const int64_t run_end = std::min(begin + run, end);
      for (int64_t input = begin; input < run_end; input += kInputs, at += 64) {
        queue.take(Lanes::kProducts);
        prefetch();
        multiplyLanes<Lanes>(at, stride, digits, input, sums);
      }
      if (kPerToken && i + kUnit < inputs) continue;
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const __m512 scale = avx512::loadScales(scales + p * stride, args.scale_dtype);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          __m512i dot = sums.digit[kDigits - 1][r][p];
          if constexpr (kDigits > 1) {
            dot = _mm512_add_epi32(_mm512_maskz_slli_epi32(0xffff, sums.digit[0][r][p], 8), dot);
          }
          const float row_scale = kPerToken ? tokens[r].scale : runs[r].scale[n];
          const __m512 value = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, dot), _mm512_set1_ps(row_scale));
          total.sum[r][p] = _mm512_fmadd_ps(scale, value, total.sum[r][p]);
        }
      }
    }
  }
  total.store(args, col);
}

template <class Lanes, int kDigits, bool kPerToken, int kRows>
void quantisedProduct(const PanelArgs& args) {
  constexpr int kMost = panelsAtOnce<kDigits>(kRows);
  LineQueueCopy queue(args.ahead);
  int64_t left = (args.cols + kPanelCols - 1) / kPanelCols;
  for (int64_t col = 0; left > 0;) {
    // Takes the last four panels as two and two instead of three and one.
    const int64_t now = left >= kMost && (kMost != 3 || left != 4) ? kMost : std::min<int64_t>(left, 2);
    if (now == kMost) {
      quantisedBlock<Lanes, kDigits, kPerToken, kRows, kMost>(args, col, queue);
    } else if (kMost > 2 && now == 2) {
      quantisedBlock<Lanes, kDigits, kPerToken, kRows, 2>(args, col, queue);
    } else {
      quantisedBlock<Lanes, kDigits, kPerToken, kRows, 1>(args, col, queue);
    }
    left -= now;
    col += now * kPanelCols;
  }
}

template <class Lanes, class Form, int... kRows>
constexpr PanelKernels makeKernels(std::integer_sequence<int, kRows...>) {
  constexpr int kDigits = Form::kDigits;
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  if constexpr (Form::kPerToken) {
    kernels.pack = &avx512::packWholeRows<Lanes::kType>;
  } else {
    kernels.pack = &avx512::packFixed<Lanes::kType, Form>;
  }
  setFixedLayout<Form>(kDigits, kernels);
  ((kernels.run[kRows + 1] = &quantisedProduct<Lanes, kDigits, Form::kPerToken, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / std::min(kPanelsInTurn, panelsAtOnce<kDigits>(kRows + 1))), ...);
  kernels.scale_columns = &avx512::scaleColumns;
  return kernels;
}

template <class Lanes, class Form>
inline constexpr PanelKernels kKernels = makeKernels<Lanes, Form>(std::make_integer_sequence<int, kTileRows>());

template <class Lanes>
const PanelKernels* quantisedKernels(const WeightFormat& format) {
  const auto select = [](auto form) -> const PanelKernels* { return &kKernels<Lanes, decltype(form)>; };
  if constexpr (Lanes::kType == DType::kInt8) return withInt8Form(format, select);
  return withFixedForm(format, select);
}

}  // namespace chorus::vnni
CHORUS_END_VNNI_CODE
#endif
