// The panel kernels of int8 and int4 with fixed-point inputs (fixed_point.h), compiled once for each instruction set:
// see panel_int8.cc. They multiply 16-bit integers in pairs, so an input is one integer here, not two digits as in
// panel_quantised_vnni-inl.h. The sums are the same integers, and so the results have the same bits.
#if defined(CHORUS_PANEL_FIXED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_PANEL_FIXED_INL
#undef CHORUS_PANEL_FIXED_INL
#else
#define CHORUS_PANEL_FIXED_INL
#endif

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/linear/fixed_point.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/linear/panel_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using VI = hn::Vec<I32>;

// Rows of a tile, and panels multiplied at once. On AVX2, the accumulators of six rows, the weights of one pair, a
// broadcast and a product fill the registers.
#if HWY_TARGET == HWY_AVX2
constexpr int kFixedTileRows = 6;
constexpr int fixedPanelsAtOnce(int rows) { return rows <= 3 ? 2 : 1; }
#else
constexpr int kFixedTileRows = kTileRows;
constexpr int fixedPanelsAtOnce(int rows) { return quantisedPanelsAtOnce(rows); }
#endif

// Splits the integers of a lane into pairs of 16 bits.
template <int kBits>
struct LanePairs {
  static constexpr DType kType = kBits == 4 ? DType::kInt4 : DType::kInt8;
  static constexpr int kInputs = 32 / kBits;
  static constexpr int kPairs = kInputs / 2;
  // The two inputs of a pair, counted from the first input of the lane. packedBit puts one in each half of the lane.
  static constexpr int first(int pair) { return kBits == 4 ? 2 * pair : pair; }
  static constexpr int second(int pair) { return first(pair) + (kBits == 4 ? 1 : 2); }
  static_assert(packedBit(kType, second(0)) == packedBit(kType, first(0)) + 16);
  static_assert(packedBit(kType, second(kPairs - 1)) == packedBit(kType, first(kPairs - 1)) + 16);

  template <int kPair>
  static HWY_INLINE VU weights(VU lanes) {
    constexpr int kShift = packedBit(kType, first(kPair));
    constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x10001u;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kPair + 1 == kPairs) {  // the upper bits of each half
      const hn::Repartition<uint16_t, U32> halves;
      return hn::BitCast(U32(), hn::ShiftRight<kShift>(hn::BitCast(halves, lanes)));
    }
#endif
    if constexpr (kShift > 0) lanes = hn::ShiftRight<kShift>(lanes);
    return hn::And(lanes, hn::Set(U32(), kMask));
  }
};

// Adds w0 * x0 + w1 * x1 to every lane of the sum. A lane of w and of x holds two integers of 16 bits, unsigned below
// 256 in w.
HWY_INLINE VI multiplyPair(VI sum, VU w, VU x) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Repartition<int16_t, I32> halves;
  VI none = hn::Zero(I32());
  sum = hn::ReorderWidenMulAccumulate(I32(), hn::BitCast(halves, w), hn::BitCast(halves, x), sum, none);
  // Without this, GCC 12 adds the products of several pairs before it adds them to the sum, for which it lacks
  // registers.
  __asm__("" : "+v"(sum.raw));
  return sum;
#else
  const auto upper = [](VU lanes) HWY_ATTR { return hn::ShiftRight<16>(hn::BitCast(I32(), lanes)); };
  const auto lower = [&](VU lanes) HWY_ATTR { return upper(hn::ShiftLeft<16>(lanes)); };
  return hn::Add(hn::Add(sum, hn::Mul(lower(w), lower(x))), hn::Mul(upper(w), upper(x)));
#endif
}

// a * b + c with one rounding. Highway's MulAdd has two if the target has no such instruction.
HWY_INLINE VF addScaled(VF a, VF b, VF c) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN float factor[kLanes], other[kLanes], sum[kLanes];
  hn::Store(a, F32(), factor);
  hn::Store(b, F32(), other);
  hn::Store(c, F32(), sum);
  for (int i = 0; i < kLanes; ++i) sum[i] = __builtin_fmaf(factor[i], other[i], sum[i]);
  return hn::Load(F32(), sum);
#else
  return hn::MulAdd(a, b, c);
#endif
}

// Adds the products of one lane's inputs to the sums. x: the packed inputs of each row; `input` is the lane's first.
template <int kBits, int kRows, int kWidth, int... kPair>
HWY_INLINE void multiplyLanePairs(const FixedValues* x, int64_t input, const VU (&lanes)[kWidth],
                                  VI (&sum)[kRows][kWidth], std::integer_sequence<int, kPair...>) {
  const auto pair = [&]<int kAt>(std::integral_constant<int, kAt>) HWY_ATTR __attribute__((always_inline)) {
    VU w[kWidth];
#pragma GCC unroll kUnroll
    for (int v = 0; v < kWidth; ++v) w[v] = LanePairs<kBits>::template weights<kAt>(lanes[v]);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      const VU both = hn::Set(U32(), x[r].pair[input / 2 + kAt]);
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) sum[r][v] = multiplyPair(sum[r][v], w[v], both);
    }
  };
  (pair(std::integral_constant<int, kPair>{}), ...);
}

// Computes kPanels panels from column `col` on.
template <int kBits, int kRows, int kPanels>
HWY_INLINE void fixedBlock(const PanelArgs& args, int64_t col, const std::byte*& next) {
  using Lanes = LanePairs<kBits>;
  constexpr int kWidth = kPanels * kVectors;
  constexpr auto kPairs = std::make_integer_sequence<int, Lanes::kPairs>();
  // Prefetch distance of a stream in bytes. As in panelBlock, the prefetch continues in another panel near a panel's
  // end.
  constexpr int64_t kAhead = 8192 / kPanels;
  Accumulators<kRows, kPanels> total;
  const int64_t end_col = std::min<int64_t>(args.cols - col, kPanels * kPanelCols);
  const int64_t begin_col = std::clamp<int64_t>(args.skip - col, 0, end_col);
  if (args.accumulate) {
    total.load(args, col, begin_col, end_col);
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWidth; ++v) total.sum[r][v] = hn::Zero(F32());
    }
  }
  const int64_t scale_bytes = kPanelCols * static_cast<int64_t>(dtypeSize(args.scale_dtype));
  const auto* at = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
  const std::byte* near_end = at + std::max<int64_t>(0, args.panel_stride - kAhead);
  const int64_t run = std::min(args.group, kFixedRun);
  const std::byte* scales = at;
  const auto* x = static_cast<const std::byte*>(args.x);
  for (int64_t i = 0; i < args.inputs; i += kFixedRun, x += kRows * kFixedBytes) {
    const auto* values = reinterpret_cast<const FixedValues*>(x);
    const auto* runs = reinterpret_cast<const FixedRuns*>(values + kRows);
    const int64_t end = std::min(args.inputs - i, kFixedRun);
    for (int64_t begin = 0, n = 0; begin < end; begin += run, ++n) {
      if ((i + begin) % args.group == 0) {
        scales = at;
        at += scale_bytes;
      }
      VI sum[kRows][kWidth];
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kWidth; ++v) sum[r][v] = hn::Set(I32(), runs[r].correction[n]);
      }
      const int64_t run_end = std::min(begin + run, end);
      for (int64_t input = begin; input < run_end; input += Lanes::kInputs, at += 64) {
        for (int line = 0; line < args.next_lines * (Lanes::kInputs / 4); ++line, next += 64) __builtin_prefetch(next);
        if (args.stream) {
          const int64_t ahead = at < near_end ? kAhead : kAhead + (kPanels - 1) * args.panel_stride;
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) __builtin_prefetch(at + p * args.panel_stride + ahead);
        }
        VU lanes[kWidth];
#pragma GCC unroll kUnroll
        for (int v = 0; v < kWidth; ++v) {
          const auto* panel = reinterpret_cast<const uint32_t*>(at + v / kVectors * args.panel_stride);
          lanes[v] = hn::LoadU(U32(), panel + v % kVectors * kLanes);
        }
        multiplyLanePairs<kBits, kRows, kWidth>(values, input, lanes, sum, kPairs);
      }
      for (int v = 0; v < kWidth; ++v) {
        const VF scale = loadScales(scales + v / kVectors * args.panel_stride, args.scale_dtype, v % kVectors * kLanes);
        for (int r = 0; r < kRows; ++r) {
          const VF value = hn::Mul(hn::ConvertTo(F32(), sum[r][v]), hn::Set(F32(), runs[r].scale[n]));
          total.sum[r][v] = addScaled(scale, value, total.sum[r][v]);
        }
      }
    }
  }
  total.store(args, col, begin_col, end_col);
}

template <int kBits, int kRows>
void fixedProduct(const PanelArgs& args) {
  constexpr int kPanels = fixedPanelsAtOnce(kRows);
  int64_t col = 0;
  auto* next = static_cast<const std::byte*>(args.next);
  for (; col + (kPanels - 1) * kPanelCols < args.cols; col += kPanels * kPanelCols) {
    fixedBlock<kBits, kRows, kPanels>(args, col, next);
  }
  if constexpr (kPanels > 1) {
    for (; col < args.cols; col += kPanelCols) fixedBlock<kBits, kRows, 1>(args, col, next);
  }
}

// Converts a run of kRun inputs, padded with zeros to that number if `count` is smaller, to fixed point.
template <int kBits, int kRun>
HWY_INLINE void packFixedRun(const float* x, int64_t count, uint32_t* pairs, float& scale, int32_t& correction) {
  using Lanes = LanePairs<kBits>;
  HWY_ALIGN float cut[kRun];
  if (count < kRun) {
    std::copy(x, x + count, cut);
    std::fill(cut + count, cut + kRun, 0.0f);
    x = cut;
  }
  VI largest = hn::Zero(I32());
  for (int k = 0; k < kRun; k += kLanes) {
    // Compared as integers, infinity and NaN are larger than all finite numbers.
    const VI magnitude = hn::And(hn::BitCast(I32(), hn::LoadU(F32(), x + k)), hn::Set(I32(), 0x7fffffff));
    largest = hn::Max(largest, magnitude);
  }
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(I32(), largest));
  const bool finite = bits < 0x7f800000;
  const float reach = std::max(__builtin_bit_cast(float, bits), kFixedLeast);
  scale = finite ? reach / kFixedLevels : std::numeric_limits<float>::quiet_NaN();
  if (!finite) {
    correction = 0;
    std::fill(pairs, pairs + kRun / 2, 0u);
    return;
  }
  // The sum with this number is rounded to an integer, to nearest even, which is in the lowest bits of its fraction.
  const VF rounding = hn::Set(F32(), 0x1.8p23f), inverse = hn::Set(F32(), kFixedLevels / reach);
  HWY_ALIGN int32_t fixed[kRun];
  VI sum = hn::Zero(I32());
  for (int k = 0; k < kRun; k += kLanes) {
    const VF rounded = hn::Add(hn::Mul(hn::LoadU(F32(), x + k), inverse), rounding);
    const VI value = hn::Sub(hn::BitCast(I32(), rounded), hn::BitCast(I32(), rounding));
    sum = hn::Add(sum, value);
    hn::Store(value, I32(), fixed + k);
  }
  correction = -fixedBias(Lanes::kType) * hn::GetLane(hn::SumOfLanes(I32(), sum));
  for (int k = 0; k < kRun; k += Lanes::kInputs) {
    for (int pair = 0; pair < Lanes::kPairs; ++pair) {
      const auto lower = static_cast<uint32_t>(fixed[k + Lanes::first(pair)]) & 0xffff;
      pairs[k / 2 + pair] = lower | static_cast<uint32_t>(fixed[k + Lanes::second(pair)]) << 16;
    }
  }
}

// PanelKernels::pack for fixed point. kRun: fixedRun of the weights' format.
template <int kBits, int kRun>
void packFixedRows(const float* const* rows, int count, int64_t inputs, void* tile) {
  auto* dst = static_cast<std::byte*>(tile);
  for (int64_t i = 0; i < inputs; i += kFixedRun, dst += count * kFixedBytes) {
    auto* values = reinterpret_cast<FixedValues*>(dst);
    auto* runs = reinterpret_cast<FixedRuns*>(values + count);
    for (int r = 0; r < count; ++r) {
      for (int run = 0; run < kFixedRun / kRun; ++run) {
        const int64_t at = std::min(i + run * kRun, inputs);
        packFixedRun<kBits, kRun>(rows[r] + at, inputs - at, values[r].pair + run * kRun / 2, runs[r].scale[run],
                                  runs[r].correction[run]);
      }
    }
  }
}

template <int kBits, int kRun, int... kRows>
constexpr PanelKernels makeFixedKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kFixedTileRows;
  kernels.pack = &packFixedRows<kBits, kRun>;
  kernels.element_bytes = 2;
  kernels.unit_inputs = kFixedRun;
  kernels.unit_extra = sizeof(FixedRuns);
  kernels.fixed_run = kRun;
  ((kernels.run[kRows + 1] = &fixedProduct<kBits, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / std::min(kPanelsInTurn, fixedPanelsAtOnce(kRows + 1))), ...);
  kernels.scale_columns = &scaleColumns;
  return kernels;
}

template <int kBits, int kRun>
const PanelKernels* fixedKernels() {
  static constexpr PanelKernels kernels =
      makeFixedKernels<kBits, kRun>(std::make_integer_sequence<int, kFixedTileRows>());
  return &kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#endif
