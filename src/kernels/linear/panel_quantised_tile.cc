// int8 and int4 weights by AMX, with fixed-point inputs.
#include "kernels/linear/panel_formats.h"

#if defined(__x86_64__)
#include <cassert>

#include "kernels/cpu/amx_tiles.h"
#include "kernels/linear/fixed_pack-inl.h"
#include "kernels/linear/panel_layout.h"

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512vl,avx512dq")
#include "kernels/linear/tile_per_token-inl.h"
#include "kernels/linear/tile_quantised_block-inl.h"

namespace chorus {
namespace {

struct QuantisedTiles : amx::Tiles {
  // Separates the even and the odd nibbles of sixteen lanes, one nibble per byte.
  static HWY_INLINE void nibbles(const std::byte* lanes, std::byte* even, std::byte* odd) {
    const __m512i all = _mm512_loadu_si512(lanes), mask = _mm512_set1_epi32(0x0f0f0f0f);
    _mm512_storeu_si512(even, _mm512_and_si512(all, mask));
    _mm512_storeu_si512(odd, _mm512_and_si512(_mm512_maskz_srli_epi32(0xffff, all, 4), mask));
  }
  // Adds the sums of a run of one row and panel, times their scales, to the totals. sums: int32 [column] of the first
  // digit; those of the second one are digit_stride bytes later.
  template <int kDigits>
  static HWY_INLINE void addRun(const std::byte* sums, int64_t digit_stride, int32_t correction, float scale,
                                const std::byte* weight_scales, DType scale_dtype, float* total) {
    const __m512i sum = _mm512_add_epi32(sumOf<kDigits>(sums, digit_stride), _mm512_set1_epi32(correction));
    const __m512 value = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum), _mm512_set1_ps(scale));
    const __m512 weights = avx512::loadScales(weight_scales, scale_dtype);
    _mm512_storeu_ps(total, _mm512_fmadd_ps(weights, value, _mm512_loadu_ps(total)));
  }
  // Converts sixteen lanes of stored weights to signed bytes by subtracting the bias (fixedBias): int8 weights, and
  // the even and the odd nibbles of int4 weights.
  static HWY_INLINE void signedBytes(const std::byte* lanes, std::byte* to) {
    const __m512i all = _mm512_loadu_si512(lanes);
    _mm512_store_si512(to, _mm512_xor_si512(all, _mm512_set1_epi8(-128)));
  }
  static HWY_INLINE void signedNibbles(const std::byte* lanes, std::byte* even, std::byte* odd) {
    const __m512i all = _mm512_loadu_si512(lanes), mask = _mm512_set1_epi8(15), bias = _mm512_set1_epi8(8);
    _mm512_store_si512(even, _mm512_sub_epi8(_mm512_and_si512(all, mask), bias));
    const __m512i upper = _mm512_and_si512(_mm512_maskz_srli_epi32(0xffff, all, 4), mask);
    _mm512_store_si512(odd, _mm512_sub_epi8(upper, bias));
  }
  static HWY_INLINE void loadScales(const std::byte* scales, DType dtype, float* to) {
    _mm512_store_ps(to, avx512::loadScales(scales, dtype));
  }
  // Adds the sums of a run, times their scales, to the totals of rows [kBegin, kEnd) and two panels.
  //   - sums: int32 [digit][panel][row][column], or with one digit [row / 16][panel][row % 16][column];
  //     weight_scales: [panel][column]; totals: [row][panel][column].
  //   - row_scales: the run's scale of row 0; that of row r is r * sizeof(FixedRuns) bytes later.
  //   - first: the totals start from zero.
  template <int kDigits, int kBegin, int kEnd>
  static HWY_INLINE void addRuns(const std::byte* sums, const float* row_scales, const float* weight_scales, bool first,
                                 float* totals) {
    constexpr int64_t kRowScales = sizeof(FixedRuns) / sizeof(float), kPanel = 1024, kRegister = 2 * kPanel;
    const __m512 weights[2] = {_mm512_load_ps(weight_scales), _mm512_load_ps(weight_scales + kPanelCols)};
#pragma GCC unroll 16
    for (int r = kBegin; r < kEnd; ++r) {
      const __m512 scale = _mm512_set1_ps(row_scales[r * kRowScales]);
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        // With two digits there is no row past 15, and the second digit's sums are where those of row 16 would be.
        const __m512i sum = sumOf<kDigits>(sums + r / 16 * kRegister + p * kPanel + r % 16 * 64, kRegister);
        float* total = totals + r * 32 + p * 16;
        const __m512 value = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum), scale);
        _mm512_store_ps(total, _mm512_fmadd_ps(weights[p], value, first ? _mm512_setzero_ps() : _mm512_load_ps(total)));
      }
    }
  }
  // Turns sixteen sums of products of whole rows into outputs, in place.
  static HWY_INLINE void scaleSums(int32_t correction, float scale, const float* weights, std::byte* sums) {
    const __m512i sum = _mm512_add_epi32(_mm512_load_si512(sums), _mm512_set1_epi32(correction));
    const __m512 value = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, sum), _mm512_set1_ps(scale));
    _mm512_store_ps(sums, _mm512_fmadd_ps(_mm512_load_ps(weights), value, _mm512_setzero_ps()));
  }
  template <int kDigits>
  static HWY_INLINE __m512i sumOf(const std::byte* sums, int64_t digit_stride) {
    const __m512i first = _mm512_loadu_si512(sums);
    if constexpr (kDigits == 1) return first;
    return _mm512_add_epi32(_mm512_maskz_slli_epi32(0xffff, first, 8), _mm512_loadu_si512(sums + digit_stride));
  }
  static HWY_INLINE void writeLine(const std::byte* line, float* y, bool non_temporal) {
    avx512::writeLine(line, y, non_temporal);
  }
  static HWY_INLINE void finishWrites() { avx512::finishWrites(); }
  template <DType kType, class Form>
  static void packFixed(const float* const* rows, int count, int64_t inputs, void* tile) {
    avx512::packFixed<kType, Form>(rows, count, inputs, tile);
  }
  template <DType kType>
  static void packWholeRows(const float* const* rows, int count, int64_t inputs, void* tile) {
    avx512::packWholeRows<kType>(rows, count, inputs, tile);
  }
  static void scaleColumns(const float* factors, float* y, int64_t count) { avx512::scaleColumns(factors, y, count); }
};
}  // namespace
}  // namespace chorus
HWY_POP_ATTRIBUTES

namespace chorus {
namespace {
// Returns the AMX kernels `tiles`, but with the kernels of `vnni` for tiles of up to vnni_rows rows; `tiles` need not
// have kernels for these. Both sets of kernels read rows and weights in the same layout.
PanelKernels withVnni(const PanelKernels* tiles, const PanelKernels* vnni, int vnni_rows) {
  assert(vnni_rows <= vnni->max_rows && vnni->pack != nullptr && vnni->fixed_run == tiles->fixed_run);
  PanelKernels kernels = *tiles;
  std::copy(vnni->run + 1, vnni->run + vnni_rows + 1, kernels.run + 1);
  std::copy(vnni->passes + 1, vnni->passes + vnni_rows + 1, kernels.passes + 1);
  return kernels;
}

// The number of rows up to which VNNI is faster. Measured with 16-bit inputs, 2048 of them, and 11264 outputs on two
// cores, in microseconds by AMX and by VNNI:
//   int8                  1 row 868, 729; 4 rows 838, 739; 6 rows 858, 808; 7 rows 873, 966
//   int4, groups of 64    1 row 517, 366; 4 rows 556, 404; 5 rows 577, 505; 7 rows 624, 681
//   int4, groups of 128   1 row 474, 356; 4 rows 490, 409; 5 rows 507, 479; 6 rows 516, 530
template <DType kType>
constexpr int kVnniRows = kType == DType::kInt8 ? 6 : 5;

template <DType kType, class Form>
const PanelKernels* kernelsOf() {
  static const PanelKernels kernels = [] {
    const WeightFormat format = formatOf<Form>(kType);
    constexpr int kFirst = kVnniRows<kType> + 1;
    const PanelKernels* vnni = kType == DType::kInt8 ? int8VnniKernels(format) : int4VnniKernels(format);
    if constexpr (Form::kPerToken) {
      return withVnni(&tiles::per_token::kKernels<QuantisedTiles, kFirst>, vnni, kVnniRows<kType>);
    } else {
      return withVnni(&tiles::quantised::kKernels<QuantisedTiles, kType, Form, kFirst>, vnni, kVnniRows<kType>);
    }
  }();
  return &kernels;
}
}  // namespace

const PanelKernels* int8TileKernels(const WeightFormat& format) {
  return withInt8Form(format, []<class Form>(Form) { return kernelsOf<DType::kInt8, Form>(); });
}
const PanelKernels* int4TileKernels(const WeightFormat& format) {
  return withFixedForm(format, []<class Form>(Form) { return kernelsOf<DType::kInt4, Form>(); });
}
}  // namespace chorus
#endif
