// The panel kernels of int8 and int4, compiled once for each instruction set: see panel_int8.cc.
#if defined(CHORUS_PANEL_QUANTISED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_PANEL_QUANTISED_INL
#undef CHORUS_PANEL_QUANTISED_INL
#else
#define CHORUS_PANEL_QUANTISED_INL
#endif

#include <algorithm>
#include <utility>
#include "kernels/linear/panel_layout.h"

#include "kernels/linear/panel_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {

using U32 = hn::RebindToUnsigned<F32>;
using VU = hn::Vec<U32>;

// Panels multiplied at once: besides the accumulators, each panel needs registers for its packed integers.
#if HWY_TARGET == HWY_AVX3
constexpr int quantisedPanelsAtOnce(int rows) { return rows <= 4 ? 4 : 2; }
#elif HWY_TARGET == HWY_SCALAR
constexpr int quantisedPanelsAtOnce(int) { return 1; }
#else
constexpr int quantisedPanelsAtOnce(int rows) { return rows == 1 ? 2 : 1; }
#endif

// Unpacks integers of kBits bits, 32 / kBits of them in a lane. Masked at its place in the lane, integer + bias becomes
// the fraction of a float; its exponent is chosen so that one subtraction leaves the integer, exactly. A fraction only
// has room for the lower half of a lane, so the upper half is shifted down first.
template <int kBits>
struct QuantisedLanes {
  static constexpr int kInputs = 32 / kBits;
  static constexpr DType kType = kBits == 4 ? DType::kInt4 : DType::kInt8;
  // Bit mask of the inputs of an int4 lane that are looked up in a table instead, if the target has a table for all 16
  // integers. Only half of them are: most processors do shuffles and additions in different units, which then share the
  // work.
  static constexpr uint32_t kLookedUp = 0x0f;

  template <int kInput>
  static HWY_INLINE VF unpack(VU lanes) {
    constexpr int kBit = packedBit(kType, kInput);
#if HWY_TARGET == HWY_AVX3
    // The lowest bits of a lane are the index into a table of all 16 integers.
    if constexpr (kBits == 4 && (kLookedUp >> kInput & 1) != 0) {
      const auto table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
      return VF{_mm512_permutexvar_ps(hn::ShiftRight<kBit>(lanes).raw, table)};
    }
#endif
    if constexpr (kBit >= 16) lanes = hn::ShiftRight<16>(lanes);
    constexpr int kShift = kBit % 16;
    constexpr uint32_t kMask = ((1u << kBits) - 1) << kShift;
    constexpr auto kOne = static_cast<float>(1 << (23 - kShift));
    constexpr auto kBias = static_cast<float>(1 << (kBits - 1));
    const U32 d;
    const VU one = hn::BitCast(d, hn::Set(F32(), kOne));
    return hn::Sub(hn::BitCast(F32(), hn::OrAnd(one, lanes, hn::Set(d, kMask))), hn::Set(F32(), kOne + kBias));
  }
};

HWY_INLINE VF loadScales(const std::byte* at, DType dtype, int lane) {
  const F32 d;
  if (dtype == DType::kBFloat16) {
    const hn::Rebind<uint16_t, F32> half;
    const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(at) + lane);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
  }
  if (dtype == DType::kFloat16) return loadHalves(d, reinterpret_cast<const f16*>(at) + lane);
  return hn::LoadU(d, reinterpret_cast<const float*>(at) + lane);
}

// Adds the products of the first `count` inputs of one lane to the sums, in ascending order.
template <int kBits, int kRows, int kWidth, bool kWhole, int... kInput>
HWY_INLINE void multiplyLanes(const float* x, int64_t count, VU (&lanes)[kWidth], VF (&sum)[kRows][kWidth],
                              std::integer_sequence<int, kInput...>) {
  using Lanes = QuantisedLanes<kBits>;
  const auto input = [&]<int kAt>(std::integral_constant<int, kAt>) HWY_ATTR __attribute__((always_inline)) {
    if (!kWhole && kAt >= count) return;
    VF w[kWidth];
#pragma GCC unroll kUnroll
    for (int v = 0; v < kWidth; ++v) w[v] = Lanes::template unpack<kAt>(lanes[v]);
    mulAddTile(x + kAt / 4 * 4 * kRows + kAt % 4, 4, w, sum);
  };
  (input(std::integral_constant<int, kInput>{}), ...);
}

// Computes kPanels panels from column `col` on.
template <int kBits, int kRows, int kPanels>
HWY_INLINE void quantisedBlock(const PanelArgs& args, int64_t col, LineQueue& queue) {
  using Lanes = QuantisedLanes<kBits>;
  constexpr int kWidth = kPanels * kVectors;
  constexpr auto kInputs = std::make_integer_sequence<int, Lanes::kInputs>();
  // Prefetch distance of a stream in bytes. As in panelBlock, the prefetch continues in another panel near a panel's
  // end.
  constexpr int64_t kAhead = 8192 / kPanels;
  Accumulators<kRows, kPanels> total;
  const int64_t end = std::min<int64_t>(args.cols - col, kPanels * kPanelCols);
  const int64_t begin_col = std::clamp<int64_t>(args.skip - col, 0, end);
  if (args.accumulate) {
    total.load(args, col, begin_col, end);
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWidth; ++v) total.sum[r][v] = hn::Zero(F32());
    }
  }
  const int64_t scale_bytes = kPanelCols * (args.scale_dtype == DType::kFloat32 ? 4 : 2);
  const auto* at = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
  const std::byte* near_end = at + std::max<int64_t>(0, args.panel_stride - kAhead);
  const auto prefetch = [&](const std::byte* from) HWY_ATTR __attribute__((always_inline)) {
    const int64_t ahead = from < near_end ? kAhead : kAhead + (kPanels - 1) * args.panel_stride;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) __builtin_prefetch(from + p * args.panel_stride + ahead);
  };
  const auto* x = static_cast<const float*>(args.x);
  for (int64_t begin = 0; begin < args.inputs; begin += args.group) {
    const int64_t inputs = std::min(args.group, args.inputs - begin);
    const std::byte* scales = at;
    if (args.stream) prefetch(at);
    at += scale_bytes;
    VF sum[kRows][kWidth];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWidth; ++v) sum[r][v] = hn::Zero(F32());
    }
    VU lanes[kWidth];
    const auto load = [&]() HWY_ATTR __attribute__((always_inline)) {
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) {
        const auto* panel = reinterpret_cast<const uint32_t*>(at + v / kVectors * args.panel_stride);
        lanes[v] = hn::LoadU(U32(), panel + v % kVectors * kLanes);
      }
    };
    int64_t left = inputs;
    for (; left >= Lanes::kInputs; left -= Lanes::kInputs, at += 64, x += Lanes::kInputs * kRows) {
      queue.take(Lanes::kInputs / 4);
      if (args.stream) prefetch(at);
      load();
      multiplyLanes<kBits, kRows, kWidth, true>(x, Lanes::kInputs, lanes, sum, kInputs);
    }
    if (left > 0) {
      load();
      multiplyLanes<kBits, kRows, kWidth, false>(x, left, lanes, sum, kInputs);
      at += 64;
      x += Lanes::kInputs * kRows;
    }
    for (int v = 0; v < kWidth; ++v) {
      const VF scale = loadScales(scales + v / kVectors * args.panel_stride, args.scale_dtype, v % kVectors * kLanes);
      for (int r = 0; r < kRows; ++r) total.sum[r][v] = mulAdd(scale, sum[r][v], total.sum[r][v]);
    }
  }
  total.store(args, col, begin_col, end);
}

template <int kBits, int kRows>
void quantisedProduct(const PanelArgs& args) {
  constexpr int kPanels = quantisedPanelsAtOnce(kRows);
  int64_t col = 0;
  LineQueueCopy queue(args.ahead);
  for (; col + (kPanels - 1) * kPanelCols < args.cols; col += kPanels * kPanelCols) {
    quantisedBlock<kBits, kRows, kPanels>(args, col, queue);
  }
  if constexpr (kPanels > 1) {
    for (; col < args.cols; col += kPanelCols) quantisedBlock<kBits, kRows, 1>(args, col, queue);
  }
}

template <int kBits, int... kRows>
constexpr PanelKernels makeQuantisedKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  ((kernels.run[kRows + 1] = &quantisedProduct<kBits, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / std::min(kPanelsInTurn, quantisedPanelsAtOnce(kRows + 1))), ...);
  kernels.scale_columns = &scaleColumns;
  return kernels;
}

template <int kBits>
const PanelKernels* quantisedKernels() {
  static constexpr PanelKernels kernels = makeQuantisedKernels<kBits>(std::make_integer_sequence<int, kTileRows>());
  return &kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();

#endif
