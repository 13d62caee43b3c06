// The panel kernels for one weight format, compiled once for each instruction set. The including file only names the
// format: see panel_bf16.cc.
#if defined(CHORUS_PANEL_KERNELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORUS_PANEL_KERNELS_INL
#undef CHORUS_PANEL_KERNELS_INL
#else
#define CHORUS_PANEL_KERNELS_INL
#endif

#include <algorithm>
#include <utility>

#include <hwy/highway.h>
#include "kernels/cpu/portable_math-inl.h"
#include "kernels/linear/panel_kernels.h"
#include "kernels/linear/panel_layout.h"

HWY_BEFORE_NAMESPACE();
namespace chorus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kPanelCols>;
using VF = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kVectors = static_cast<int>(kPanelCols) / kLanes;  // of one panel

// Rows of a tile, and panels multiplied at once. They are chosen so that accumulators, a few weights and a broadcast
// fill the registers; at least eight accumulators hide the latency of a multiply-add. The hardware prefetchers could
// not follow more than four streams.
#if HWY_TARGET == HWY_AVX3
constexpr int kTileRows = 12;
constexpr int panelsAtOnce(int rows) { return rows <= 4 ? 4 : 2; }
#elif HWY_TARGET == HWY_AVX2
constexpr int kTileRows = 5;
constexpr int panelsAtOnce(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
#elif HWY_TARGET == HWY_NEON
constexpr int kTileRows = 4;
constexpr int panelsAtOnce(int rows) { return rows == 1 ? 2 : 1; }
#elif HWY_TARGET == HWY_SCALAR
// Small tiles, for the sake of compile time.
constexpr int kTileRows = 2;
constexpr int panelsAtOnce(int) { return 1; }
#else
constexpr int kTileRows = 6;
constexpr int panelsAtOnce(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }
#endif
// Unroll factor of loops over the rows or the vectors of a tile. Vectors of one lane stay in a loop, because unrolled
// they would only be more code to compile.
constexpr int kUnroll = kLanes == 1 ? 1 : 16;

// A format struct loads the weights of inputs i and i + 1 (i even) for lanes [lane, lane + kLanes) of a panel; loadLast
// loads only input i.
struct Float32Panels {
  static constexpr int64_t kInputsPerStride = 1;
  // Prefetches the lines that hold inputs i and i + 1.
  static HWY_INLINE void prefetch(const std::byte* panel, int64_t stride, int64_t i) {
    __builtin_prefetch(panel + i * stride);
    __builtin_prefetch(panel + (i + 1) * stride);
  }
  static HWY_INLINE void load(const std::byte* panel, int64_t stride, int64_t i, int lane, VF& even, VF& odd) {
    even = hn::LoadU(F32(), reinterpret_cast<const float*>(panel + i * stride) + lane);
    odd = hn::LoadU(F32(), reinterpret_cast<const float*>(panel + (i + 1) * stride) + lane);
  }
  static HWY_INLINE VF loadLast(const std::byte* panel, int64_t stride, int64_t i, int lane) {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(panel + i * stride) + lane);
  }
};

struct Float16Panels {
  static constexpr int64_t kInputsPerStride = 1;
  // Prefetches the lines that hold inputs i and i + 1.
  static HWY_INLINE void prefetch(const std::byte* panel, int64_t stride, int64_t i) {
    __builtin_prefetch(panel + i * stride);
  }
  static HWY_INLINE VF loadLast(const std::byte* panel, int64_t stride, int64_t i, int lane) {
    return loadHalves(F32(), panel + i * stride + lane * sizeof(f16));
  }
  static HWY_INLINE void load(const std::byte* panel, int64_t stride, int64_t i, int lane, VF& even, VF& odd) {
    even = loadLast(panel, stride, i, lane);
    odd = loadLast(panel, stride, i + 1, lane);
  }
};

struct Bfloat16Panels {
  static constexpr int64_t kInputsPerStride = 2;
  // Prefetches the lines that hold inputs i and i + 1.
  static HWY_INLINE void prefetch(const std::byte* panel, int64_t stride, int64_t i) {
    __builtin_prefetch(panel + i / 2 * stride);
  }
  static HWY_INLINE auto pair(const std::byte* panel, int64_t stride, int64_t i, int lane) {
    const hn::RebindToUnsigned<F32> d;
    return hn::LoadU(d, reinterpret_cast<const uint32_t*>(panel + i / 2 * stride) + lane);
  }
  static HWY_INLINE void load(const std::byte* panel, int64_t stride, int64_t i, int lane, VF& even, VF& odd) {
    const hn::RebindToUnsigned<F32> d;
    const auto both = pair(panel, stride, i, lane);
    even = hn::BitCast(F32(), hn::ShiftLeft<16>(both));
    odd = hn::BitCast(F32(), hn::And(both, hn::Set(d, 0xffff0000u)));
  }
  static HWY_INLINE VF loadLast(const std::byte* panel, int64_t stride, int64_t i, int lane) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(pair(panel, stride, i, lane)));
  }
};

// The accumulators of kRows rows and kPanels panels. They are moved between registers and y, through a buffer if not
// all columns are used.
template <int kRows, int kPanels>
struct Accumulators {
  static constexpr int kWidth = kPanels * kVectors;
  VF sum[kRows][kWidth];

  // The compiler's default constructor would not be compiled for the instruction set.
  HWY_INLINE Accumulators() {}
  static bool whole(int64_t begin, int64_t end) { return begin == 0 && end == kPanels * kPanelCols; }
  // Loads columns [begin, end) of these panels; the other columns are zero.
  HWY_INLINE void load(const PanelArgs& args, int64_t col, int64_t begin, int64_t end) {
    for (int r = 0; r < kRows; ++r) {
      const float* y = args.y[r] + col;
      HWY_ALIGN float cut[kPanels * kPanelCols] = {};
      if (!whole(begin, end)) {
        std::copy(y + begin, y + end, cut + begin);
        y = cut;
      }
      for (int v = 0; v < kWidth; ++v) sum[r][v] = hn::LoadU(F32(), y + v * kLanes);
    }
  }
  HWY_INLINE void store(const PanelArgs& args, int64_t col, int64_t begin, int64_t end) const {
    for (int r = 0; r < kRows; ++r) {
      float* y = args.y[r] + col;
      if (whole(begin, end)) {
        for (int v = 0; v < kWidth; ++v) hn::StoreU(sum[r][v], F32(), y + v * kLanes);
      } else {
        HWY_ALIGN float cut[kPanels * kPanelCols];
        for (int v = 0; v < kWidth; ++v) hn::Store(sum[r][v], F32(), cut + v * kLanes);
        std::copy(cut + begin, cut + end, y + begin);
      }
    }
  }
};

// Multiplies inputs [begin, end) of kPanels panels, a whole number of quads (four inputs). ahead: prefetch distance in
// bytes; 0: no prefetch.
template <class Format, int kRows, int kPanels>
HWY_INLINE void multiplyQuads(const PanelArgs& args, const std::byte* panels, int64_t begin, int64_t end, int64_t ahead,
                              LineQueue& queue, VF (&sum)[kRows][kPanels * kVectors]) {
  constexpr int kWidth = kPanels * kVectors;
  const int64_t stride = args.input_stride;
  const float* x = static_cast<const float*>(args.x) + begin * kRows;
  VF even[kWidth], odd[kWidth];
  for (int64_t i = begin; i < end; i += 4, x += 4 * kRows) {
    queue.take(1);
#pragma GCC unroll 2
    for (int pair = 0; pair < 4; pair += 2) {
#pragma GCC unroll kUnroll
      for (int v = 0; v < kWidth; ++v) {
        const std::byte* panel = panels + v / kVectors * args.panel_stride;
        if (ahead != 0 && v % kVectors == 0) Format::prefetch(panel + ahead, stride, i + pair);
        Format::load(panel, stride, i + pair, v % kVectors * kLanes, even[v], odd[v]);
      }
      mulAddTile(x + pair, 4, even, sum);
      mulAddTile(x + pair + 1, 4, odd, sum);
    }
  }
}

// Computes kPanels panels from column `col` on.
template <class Format, int kRows, int kPanels>
HWY_INLINE void panelBlock(const PanelArgs& args, int64_t col, LineQueue& queue) {
  constexpr int kWidth = kPanels * kVectors;
  // Prefetch distance of a stream in bytes; all streams together have about 8 KB in flight.
  constexpr int64_t kAhead = 8192 / kPanels;
  Accumulators<kRows, kPanels> acc;
  const int64_t end = std::min<int64_t>(args.cols - col, kPanels * kPanelCols);
  const int64_t begin = std::clamp<int64_t>(args.skip - col, 0, end);
  if (args.accumulate) {
    acc.load(args, col, begin, end);
  } else {
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kWidth; ++v) acc.sum[r][v] = hn::Zero(F32());
    }
  }
  const std::byte* panels = static_cast<const std::byte*>(args.panels) + col / kPanelCols * args.panel_stride;
  const int64_t stride = args.input_stride;
  const int64_t quads_end = args.inputs / 4 * 4;
  if (args.stream) {
    // Near a panel's end, the prefetch continues in the panel that is taken after this block.
    const int64_t near_end = std::max<int64_t>(0, quads_end - kAhead / stride * Format::kInputsPerStride) / 4 * 4;
    multiplyQuads<Format, kRows, kPanels>(args, panels, 0, near_end, kAhead, queue, acc.sum);
    multiplyQuads<Format, kRows, kPanels>(args, panels, near_end, quads_end, kAhead + (kPanels - 1) * args.panel_stride,
                                          queue, acc.sum);
  } else {
    multiplyQuads<Format, kRows, kPanels>(args, panels, 0, quads_end, 0, queue, acc.sum);
  }
  const float* x = static_cast<const float*>(args.x) + quads_end * kRows;
  VF even[kWidth], odd[kWidth];
  for (int64_t i = quads_end; i < args.inputs; ++i) {
    const int64_t at = i - quads_end;
    for (int v = 0; v < kWidth; ++v) {
      const std::byte* panel = panels + v / kVectors * args.panel_stride;
      if (at == 1) {
        Format::load(panel, stride, i - 1, v % kVectors * kLanes, even[v], odd[v]);
        even[v] = odd[v];
      } else {
        even[v] = Format::loadLast(panel, stride, i, v % kVectors * kLanes);
      }
    }
    mulAddTile(x + at, 4, even, acc.sum);
  }
  acc.store(args, col, begin, end);
}

template <class Format, int kRows>
void panelProduct(const PanelArgs& args) {
  constexpr int kPanels = panelsAtOnce(kRows);
  int64_t col = 0;
  LineQueueCopy queue(args.ahead);
  for (; col + (kPanels - 1) * kPanelCols < args.cols; col += kPanels * kPanelCols) {
    panelBlock<Format, kRows, kPanels>(args, col, queue);
  }
  if constexpr (kPanels > 1) {
    for (; col < args.cols; col += kPanelCols) panelBlock<Format, kRows, 1>(args, col, queue);
  }
}

inline void scaleColumns(const float* factors, float* y, int64_t count) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::LoadU(d, factors + i)), d, y + i);
  for (; i < count; ++i) y[i] *= factors[i];
}

template <class Format, int... kRows>
constexpr PanelKernels makeKernels(std::integer_sequence<int, kRows...>) {
  PanelKernels kernels;
  kernels.max_rows = kTileRows;
  ((kernels.run[kRows + 1] = &panelProduct<Format, kRows + 1>), ...);
  ((kernels.passes[kRows + 1] = kPanelsInTurn / std::min(kPanelsInTurn, panelsAtOnce(kRows + 1))), ...);
  kernels.scale_columns = &scaleColumns;
  return kernels;
}

template <class Format>
const PanelKernels* formatKernels() {
  static constexpr PanelKernels kernels = makeKernels<Format>(std::make_integer_sequence<int, kTileRows>());
  return &kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace chorus
HWY_AFTER_NAMESPACE();
#endif
