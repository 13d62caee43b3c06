// The panel kernels of int8 and int4 with fixed-point inputs (fixed_point.h), compiled once for each instruction set:
// see panel_int8.cc. PairProducts multiplies 16-bit integers in pairs, so an input is one integer there, not the digits
// of panel_quantised_vnni-inl.h. Inputs of one digit are multiplied as bytes where that is faster: by ByteProducts with
// int4 weights, by DotProducts with all. The sums are always the same integers, and so the results have the same bits.
#if defined(CHORUS_PANEL_FIXED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_PANEL_FIXED_INL
#undef CHORUS_PANEL_FIXED_INL
#else
#define CHORUS_PANEL_FIXED_INL
#endif

#include <algorithm>
#include <cstring>
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

// Products of pairs of 16-bit integers.
//
// Products classes have:
//   - Inputs: the packed inputs of a row, FixedValues or FixedDigits.
//   - kInputs: inputs of a lane. kSpan: inputs that `multiply` takes at a time, at most.
//   - kBiased: whether weights are multiplied unsigned, as they are stored, so that the effect of the bias is
//   subtracted.
//   - multiply: adds the products of inputs [input, end) of kFixedUnit to the sums of each row. load(lanes) loads the
//     next lane of every vector of outputs.
template <int kBits, bool kPerToken>
struct PairProducts {
  using Inputs = FixedValues<kFixedUnit<kPerToken>>;
  static constexpr int64_t kInputs = LanePairs<kBits>::kInputs, kSpan = kInputs;
  static constexpr bool kBiased = true;

  template <int kRows, int kWidth, class Load>
  static HWY_INLINE void multiply(const Inputs* x, int64_t input, int64_t, const Load& load, VI (&sum)[kRows][kWidth]) {
    VU lanes[kWidth];
    load(lanes);
    multiplyPairs<kRows, kWidth>(x, input, lanes, sum, std::make_integer_sequence<int, LanePairs<kBits>::kPairs>());
  }

 private:
  template <int kRows, int kWidth, int... kPair>
  static HWY_INLINE void multiplyPairs(const Inputs* x, int64_t input, const VU (&lanes)[kWidth],
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
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Products of int4 weights and inputs of one digit, as bytes. An instruction adds two products, at most 2 * 15 * 127 =
// 3810 in magnitude. A lane has eight inputs of a feature, which give two such sums for each 16-bit element, so that
// the sums over kSpan inputs (four loads) stay within 8 * 3810 = 30480.
struct ByteProducts {
  using Inputs = FixedDigits<1>;
  static constexpr int64_t kInputs = 8, kSpan = 32;
  static constexpr bool kBiased = true;
  using Shorts = hn::Repartition<int16_t, I32>;
  using VS = hn::Vec<Shorts>;

  template <int kRows, int kWidth, class Load>
  static HWY_INLINE void multiply(const Inputs* x, int64_t input, int64_t end, const Load& load,
                                  VI (&sum)[kRows][kWidth]) {
    const Shorts shorts;
    VS partial[kRows][kWidth];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWidth; ++v) partial[r][v] = hn::Zero(shorts);
    }
    for (; input < end; input += kInputs) {
      VU lanes[kWidth];
      load(lanes);
      multiplyNibbles<0, kRows, kWidth>(x, input, lanes, partial);
      multiplyNibbles<4, kRows, kWidth>(x, input, lanes, partial);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWidth; ++v) {
        VI none = hn::Zero(I32());
        sum[r][v] = hn::ReorderWidenMulAccumulate(I32(), partial[r][v], hn::Set(shorts, 1), sum[r][v], none);
      }
    }
  }

 private:
  // Adds w0 * x0 + w1 * x1 to every 16-bit lane of the sum; bytes of w are unsigned, bytes of x have a sign.
  static HWY_INLINE VS multiplyBytes(VS sum, VU w, VU x) {
#if HWY_TARGET == HWY_AVX2
    sum = hn::Add(sum, VS{_mm256_maddubs_epi16(w.raw, x.raw)});
#else
    sum = hn::Add(sum, VS{_mm512_maddubs_epi16(w.raw, x.raw)});
#endif
    __asm__("" : "+v"(sum.raw));  // see multiplyPair
    return sum;
  }
  // Multiplies the even (kShift 0) or the odd (kShift 4) nibbles of the lanes.
  template <int kShift, int kRows, int kWidth>
  static HWY_INLINE void multiplyNibbles(const Inputs* x, int64_t input, const VU (&lanes)[kWidth],
                                         VS (&partial)[kRows][kWidth]) {
    VU w[kWidth];
#pragma GCC unroll kUnroll
    for (int v = 0; v < kWidth; ++v) {
      w[v] = hn::And(kShift == 0 ? lanes[v] : hn::ShiftRight<kShift>(lanes[v]), hn::Set(U32(), 0x0f0f0f0f));
    }
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t four;
      std::memcpy(&four, x[r].digit[0] + input + kShift, sizeof four);
      const VU digits = hn::Set(U32(), four);
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) partial[r][v] = multiplyBytes(partial[r][v], w[v], digits);
    }
  }
};
#endif

#if HWY_ARCH_ARM_A64
// Adds the products of the four signed bytes of w and x to every lane of the sum, by an instruction of Armv8.2. It is
// written in assembly where the compiler may not use it, because only kNeonDot needs a machine that has it.
HWY_INLINE VI multiplyFour(VI sum, VU w, VU x) {
#ifdef __ARM_FEATURE_DOTPROD
  return VI(vdotq_s32(sum.raw, vreinterpretq_s8_u32(w.raw), vreinterpretq_s8_u32(x.raw)));
#else
  int32x4_t raw = sum.raw;
  __asm__(".arch armv8.2-a+crypto+dotprod\n\tsdot %0.4s, %1.16b, %2.16b" : "+w"(raw) : "w"(w.raw), "w"(x.raw));
  return VI(raw);
#endif
}

// Products of inputs of one digit, as bytes.
template <int kBits, bool kPerToken>
struct DotProducts {
  using Inputs = FixedDigits<1, kFixedUnit<kPerToken>>;
  static constexpr int64_t kInputs = 32 / kBits, kSpan = kInputs;
  static constexpr bool kBiased = kBits == 4;

  template <int kRows, int kWidth, class Load>
  static HWY_INLINE void multiply(const Inputs* x, int64_t input, int64_t, const Load& load, VI (&sum)[kRows][kWidth]) {
    VU lanes[kWidth];
    load(lanes);
    if constexpr (kBits == 8) {
      // The stored byte less its bias, 128, is the byte with its highest bit changed.
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) lanes[v] = hn::Xor(lanes[v], hn::Set(U32(), 0x80808080));
      multiplyFours(x, input, lanes, sum);
    } else {
      VU odd[kWidth];
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) {
        odd[v] = hn::And(hn::ShiftRight<4>(lanes[v]), hn::Set(U32(), 0x0f0f0f0f));
        lanes[v] = hn::And(lanes[v], hn::Set(U32(), 0x0f0f0f0f));
      }
      multiplyFours(x, input, lanes, sum);
      multiplyFours(x, input + 4, odd, sum);
    }
  }

 private:
  template <int kRows, int kWidth>
  static HWY_INLINE void multiplyFours(const Inputs* x, int64_t input, const VU (&w)[kWidth],
                                       VI (&sum)[kRows][kWidth]) {
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      uint32_t four;
      std::memcpy(&four, x[r].digit[0] + input, sizeof four);
      const VU digits = hn::Set(U32(), four);
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) sum[r][v] = multiplyFour(sum[r][v], w[v], digits);
    }
  }
};
#endif

// Computes kPanels panels from column `col` on.
template <class Products, bool kPerToken, int kRows, int kPanels>
HWY_INLINE void fixedBlock(const PanelArgs& args, int64_t col, LineQueue& queue) {
  using Inputs = typename Products::Inputs;
  constexpr int kUnit = kFixedUnit<kPerToken>;
  constexpr int kWidth = kPanels * kVectors;
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
  const int64_t scale_bytes =
      kPerToken ? kTokenScaleBytes : kPanelCols * static_cast<int64_t>(dtypeSize(args.scale_dtype));
  const auto* at = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
  const std::byte* near_end = at + std::max<int64_t>(0, args.panel_stride - kAhead);
  const int64_t run = std::min<int64_t>(args.group, kUnit);
  const std::byte* scales = at;
  const auto* x = static_cast<const std::byte*>(args.x);
  const TokenRun* tokens = kPerToken ? tokenRuns<Inputs>(args.x, kRows, args.inputs) : nullptr;
  VI sum[kRows][kWidth];
  const auto start = [&sum](int row, int32_t correction) HWY_ATTR __attribute__((always_inline)) {
    for (int v = 0; v < kWidth; ++v) sum[row][v] = hn::Set(I32(), Products::kBiased ? correction : 0);
  };
  for (int r = 0; r < kRows; ++r) start(r, kPerToken ? tokens[r].correction : 0);
  for (int64_t i = 0; i < args.inputs; i += kUnit, x += kRows * kFixedBytes<Inputs, kPerToken>) {
    const auto* values = reinterpret_cast<const Inputs*>(x);
    const auto* runs = reinterpret_cast<const FixedRuns*>(values + kRows);
    const int64_t end = std::min<int64_t>(args.inputs - i, kUnit);
    for (int64_t begin = 0, n = 0; begin < end; begin += run, ++n) {
      if (kPerToken ? i == 0 : (i + begin) % args.group == 0) {
        scales = at;
        at += scale_bytes;
      }
      for (int r = 0; r < kRows && !kPerToken; ++r) start(r, runs[r].correction[n]);
      const auto load = [&](VU(&lanes)[kWidth]) HWY_ATTR __attribute__((always_inline)) {
        queue.take(Products::kInputs / 4);
        if (args.stream) {
          const int64_t ahead = at < near_end ? kAhead : kAhead + (kPanels - 1) * args.panel_stride;
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) __builtin_prefetch(at + p * args.panel_stride + ahead);
        }
#pragma GCC unroll kUnroll
        for (int v = 0; v < kWidth; ++v) {
          const auto* panel = reinterpret_cast<const uint32_t*>(at + v / kVectors * args.panel_stride);
          lanes[v] = hn::LoadU(U32(), panel + v % kVectors * kLanes);
        }
        at += 64;
      };
      const int64_t run_end = std::min(begin + run, end);
      for (int64_t input = begin; input < run_end; input += Products::kSpan) {
        Products::template multiply<kRows, kWidth>(values, input, std::min(input + Products::kSpan, run_end), load,
                                                   sum);
      }
      if (kPerToken && i + kUnit < args.inputs) continue;
      for (int v = 0; v < kWidth; ++v) {
        const VF scale = loadScales(scales + v / kVectors * args.panel_stride, args.scale_dtype, v % kVectors * kLanes);
        for (int r = 0; r < kRows; ++r) {
          const float row_scale = kPerToken ? tokens[r].scale : runs[r].scale[n];
          const VF value = hn::Mul(hn::ConvertTo(F32(), sum[r][v]), hn::Set(F32(), row_scale));
          total.sum[r][v] = mulAdd(scale, value, total.sum[r][v]);
        }
      }
    }
  }
  total.store(args, col, begin_col, end_col);
}

template <class Products, bool kPerToken, int kRows>
void fixedProduct(const PanelArgs& args) {
  constexpr int kPanels = fixedPanelsAtOnce(kRows);
  int64_t col = 0;
  LineQueueCopy queue(args.ahead);
  for (; col + (kPanels - 1) * kPanelCols < args.cols; col += kPanels * kPanelCols) {
    fixedBlock<Products, kPerToken, kRows, kPanels>(args, col, queue);
  }
  if constexpr (kPanels > 1) {
    for (; col < args.cols; col += kPanelCols) fixedBlock<Products, kPerToken, kRows, 1>(args, col, queue);
  }
}

// Stores the kRun integers that begin at input `first` of kFixedUnit.
template <int kBits, int kRun, int kUnit>
HWY_INLINE void storeRun(const int32_t* fixed, int first, FixedValues<kUnit>& values) {
  using Lanes = LanePairs<kBits>;
  for (int k = 0; k < kRun; k += Lanes::kInputs) {
    for (int pair = 0; pair < Lanes::kPairs; ++pair) {
      const auto lower = static_cast<uint32_t>(fixed[k + Lanes::first(pair)]) & 0xffff;
      values.pair[(first + k) / 2 + pair] = lower | static_cast<uint32_t>(fixed[k + Lanes::second(pair)]) << 16;
    }
  }
}
template <int kBits, int kRun, int kUnit>
HWY_INLINE void storeRun(const int32_t* fixed, int first, FixedDigits<1, kUnit>& digits) {
  for (int k = 0; k < kRun; k += 8) {
    for (int i = 0; i < 8; ++i) {
      digits.digit[0][first + k + i] = static_cast<int8_t>(fixed[k + (kBits == 4 ? kFixedOrder[i] : i)]);
    }
  }
}

// How the inputs of a run are scaled to fixed point.
struct RunScale {
  float scale;    // NaN if an input is not finite, and then all integers are 0
  float inverse;  // NaN likewise

  // largest: the largest magnitudes of the run, as integers: infinity and NaN are larger than all finite numbers.
  HWY_INLINE RunScale(VI largest, int levels) {
    const int32_t bits = hn::GetLane(hn::MaxOfLanes(I32(), largest));
    const float reach = std::max(__builtin_bit_cast(float, bits), kFixedLeast);
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    scale = bits < 0x7f800000 ? reach / static_cast<float>(levels) : kNone;
    inverse = bits < 0x7f800000 ? static_cast<float>(levels) / reach : kNone;
  }
  bool finite() const { return scale == scale; }
};

// Returns kRun inputs: those at x, or if there are fewer, `cut`, to which the `count` inputs are copied and padded with
// zeros.
template <int kRun>
HWY_INLINE const float* padded(const float* x, int64_t count, float* cut) {
  if (count >= kRun) return x;
  std::copy(x, x + count, cut);
  std::fill(cut + count, cut + kRun, 0.0f);
  return cut;
}

// The largest magnitudes of kRun inputs and of `largest`, as integers.
template <int kRun>
HWY_INLINE VI largestOf(const float* x, VI largest) {
  for (int k = 0; k < kRun; k += kLanes) {
    const VI magnitude = hn::And(hn::BitCast(I32(), hn::LoadU(F32(), x + k)), hn::Set(I32(), 0x7fffffff));
    largest = hn::Max(largest, magnitude);
  }
  return largest;
}

// Converts kRun inputs to fixed point, stores them from input `first` of `inputs` on, and adds the integers to `sum`.
template <int kBits, int kRun, class Inputs>
HWY_INLINE void storeFixed(const float* x, const RunScale& run, int first, Inputs& inputs, VI& sum) {
  HWY_ALIGN int32_t fixed[kRun] = {};
  // The sum with this number is rounded to an integer, to nearest even, which is in the lowest bits of its fraction.
  const VF rounding = hn::Set(F32(), 0x1.8p23f), inverse = hn::Set(F32(), run.inverse);
  for (int k = 0; k < kRun && run.finite(); k += kLanes) {
    const VF rounded = hn::Add(hn::Mul(hn::LoadU(F32(), x + k), inverse), rounding);
    const VI value = hn::Sub(hn::BitCast(I32(), rounded), hn::BitCast(I32(), rounding));
    sum = hn::Add(sum, value);
    hn::Store(value, I32(), fixed + k);
  }
  storeRun<kBits, kRun>(fixed, first, inputs);
}

// Packs whole rows for PerTokenForm.
template <int kBits, class Inputs>
void packWholeRows(const float* const* rows, int count, int64_t inputs, void* tile) {
  constexpr int kUnit = kFixedUnit<true>;
  TokenRun* runs = tokenRuns<Inputs>(tile, count, inputs);
  HWY_ALIGN float cut[kUnit];
  for (int r = 0; r < count; ++r) {
    VI largest = hn::Zero(I32()), sum = hn::Zero(I32());
    for (int64_t i = 0; i < inputs; i += kUnit) {
      largest = largestOf<kUnit>(padded<kUnit>(rows[r] + i, inputs - i, cut), largest);
    }
    const RunScale run(largest, fixedLevels(1));
    auto* values = static_cast<Inputs*>(tile) + r;
    for (int64_t i = 0; i < inputs; i += kUnit, values += count) {
      storeFixed<kBits, kUnit>(padded<kUnit>(rows[r] + i, inputs - i, cut), run, 0, *values, sum);
    }
    runs[r] = {run.scale, -fixedBias(LanePairs<kBits>::kType) * hn::GetLane(hn::SumOfLanes(I32(), sum))};
  }
}

// PanelKernels::pack for fixed point. Form: the FixedForm of the weights' format.
template <int kBits, class Form, class Inputs>
void packFixedRows(const float* const* rows, int count, int64_t inputs, void* tile) {
  constexpr int kRun = Form::kRun;
  HWY_ALIGN float cut[kRun];
  auto* dst = static_cast<std::byte*>(tile);
  for (int64_t i = 0; i < inputs; i += kFixedRun, dst += count * kFixedBytes<Inputs>) {
    auto* values = reinterpret_cast<Inputs*>(dst);
    auto* runs = reinterpret_cast<FixedRuns*>(values + count);
    for (int r = 0; r < count; ++r) {
      for (int run = 0; run < kFixedRun / kRun; ++run) {
        const int64_t at = std::min(i + run * kRun, inputs);
        const float* x = padded<kRun>(rows[r] + at, inputs - at, cut);
        const RunScale scale(largestOf<kRun>(x, hn::Zero(I32())), fixedLevels(Form::kDigits));
        VI sum = hn::Zero(I32());
        storeFixed<kBits, kRun>(x, scale, run * kRun, values[r], sum);
        runs[r].scale[run] = scale.scale;
        runs[r].correction[run] = -fixedBias(LanePairs<kBits>::kType) * hn::GetLane(hn::SumOfLanes(I32(), sum));
      }
    }
  }
}

template <int kBits, class Form, class Products, int... kRows>
constexpr PanelKernels makeFixedKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kFixedTileRows;
  using Inputs = typename Products::Inputs;
  if constexpr (Form::kPerToken) {
    kernels.pack = &packWholeRows<kBits, Inputs>;
  } else {
    kernels.pack = &packFixedRows<kBits, Form, Inputs>;
  }
  setFixedLayout<Form>(sizeof(Inputs) / kFixedUnit<Form::kPerToken>, kernels);
  ((kernels.run[kRows + 1] = &fixedProduct<Products, Form::kPerToken, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / std::min(kPanelsInTurn, fixedPanelsAtOnce(kRows + 1))), ...);
  kernels.scale_columns = &scaleColumns;
  return kernels;
}

template <int kBits, class Form>
struct ProductsOf {
  using Type = PairProducts<kBits, Form::kPerToken>;
};
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
template <int kRun>
struct ProductsOf<4, FixedForm<1, kRun>> {
  using Type = ByteProducts;
};
#endif

template <int kBits, class Form>
const PanelKernels* fixedKernels() {
  static constexpr PanelKernels kernels = makeFixedKernels<kBits, Form, typename ProductsOf<kBits, Form>::Type>(
      std::make_integer_sequence<int, kFixedTileRows>());
  return &kernels;
}

#if HWY_ARCH_ARM_A64
// fixedKernels for machines that have the dot products of DotProducts.
template <int kBits, class Form>
const PanelKernels* fixedDotKernels() {
  if constexpr (Form::kDigits == 1) {
    static constexpr PanelKernels kernels = makeFixedKernels<kBits, Form, DotProducts<kBits, Form::kPerToken>>(
        std::make_integer_sequence<int, kFixedTileRows>());
    return &kernels;
  } else {
    return fixedKernels<kBits, Form>();
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#endif
