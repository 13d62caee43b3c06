// Tests the AMX kernels of int8 and int4 on emulated registers, so that machines without AMX test them too. The results
// must have the bits of plain integer arithmetic.
#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/linear/tile_per_token-inl.h"
#include "kernels/linear/tile_quantised_block-inl.h"
#include "kernels/testing/emulated_tiles.h"
#include "kernels/testing/fixed_reference.h"
#include "kernels/testing/guarded_memory.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::FixedRow;
using kernel_test::Guarded;
using kernel_test::Values;

// TDPBSUD and TDPBSSD as Intel's manual defines them, and the other operations of a Unit in plain C++.
struct EmulatedQuantised : tiles::EmulatedTiles {
  template <int kSums, int kRows, int kWeights>
  static void multiplyInt8() {
    multiply<kSums, kRows, kWeights, uint8_t>();
  }
  template <int kSums, int kRows, int kWeights>
  static void multiplySigned() {
    multiply<kSums, kRows, kWeights, int8_t>();
  }
  template <int kSums, int kRows, int kWeights, typename Weight>
  static void multiply() {
    static_assert(kSums != kRows && kSums != kWeights && kRows != kWeights);
    Register& sums = used<kSums>();
    const Register &rows = used<kRows>(), &weights = used<kWeights>();
    const tiles::Palette& p = state().palette;
    require(p.rows[kSums] == p.rows[kRows] && p.row_bytes[kRows] / 4 == p.rows[kWeights] &&
                p.row_bytes[kSums] == p.row_bytes[kWeights] && p.row_bytes[kRows] % 4 == 0,
            "TDPBSUD, TDPBSSD: register shapes do not match");
    for (int m = 0; m < p.rows[kSums]; ++m) {
      for (int n = 0; n < p.row_bytes[kSums] / 4; ++n) {
        std::byte* at = sums.bytes + m * tiles::kRowBytes + n * 4;
        int32_t sum;
        std::memcpy(&sum, at, sizeof sum);
        for (int k = 0; k < p.row_bytes[kRows]; ++k) {
          const auto a = static_cast<int8_t>(rows.bytes[m * tiles::kRowBytes + k]);
          const auto b = static_cast<Weight>(weights.bytes[k / 4 * tiles::kRowBytes + n * 4 + k % 4]);
          sum += a * b;
        }
        std::memcpy(at, &sum, sizeof sum);
      }
    }
  }
  static void nibbles(const std::byte* lanes, std::byte* even, std::byte* odd) {
    for (int i = 0; i < 64; ++i) {
      even[i] = lanes[i] & std::byte{15};
      odd[i] = lanes[i] >> 4;
    }
  }
  static void signedBytes(const std::byte* lanes, std::byte* to) {
    for (int i = 0; i < 64; ++i) to[i] = lanes[i] ^ std::byte{128};
  }
  static void signedNibbles(const std::byte* lanes, std::byte* even, std::byte* odd) {
    nibbles(lanes, even, odd);
    for (int i = 0; i < 64; ++i) {
      even[i] = static_cast<std::byte>(static_cast<int>(even[i]) - 8);
      odd[i] = static_cast<std::byte>(static_cast<int>(odd[i]) - 8);
    }
  }
  static void loadScales(const std::byte* scales, DType dtype, float* to) {
    for (size_t c = 0; c < kPanelCols; ++c) to[c] = loadAsFloat(scales, dtype, c);
  }
  template <int kDigits, int kBegin, int kEnd>
  static void addRuns(const std::byte* sums, const float* row_scales, const float* weight_scales, bool first,
                      float* totals) {
    constexpr int64_t kBytes = tiles::kRegisterRows * tiles::kRowBytes;
    for (int64_t r = kBegin; r < kEnd; ++r) {
      for (int64_t p = 0; p < 2; ++p) {
        float* total = totals + (2 * r + p) * kPanelCols;
        if (first) std::fill(total, total + kPanelCols, 0.0f);
        const std::byte* of_row = sums + r / 16 * 2 * kBytes + p * kBytes + r % 16 * tiles::kRowBytes;
        addRun<kDigits>(of_row, 2 * kBytes, 0, row_scales[r * static_cast<int64_t>(sizeof(FixedRuns) / sizeof(float))],
                        reinterpret_cast<const std::byte*>(weight_scales + p * kPanelCols), DType::kFloat32, total);
      }
    }
  }
  template <int kDigits>
  static void addRun(const std::byte* sums, int64_t digit_stride, int32_t correction, float scale,
                     const std::byte* weight_scales, DType scale_dtype, float* total) {
    for (size_t c = 0; c < kPanelCols; ++c) {
      int64_t sum = 0;
      for (int d = 0; d < kDigits; ++d) {
        int32_t digit;
        std::memcpy(&digit, sums + d * digit_stride + 4 * c, sizeof digit);
        sum = sum * 256 + digit;
      }
      const auto value = static_cast<float>(sum + correction) * scale;
      total[c] = std::fma(loadAsFloat(weight_scales, scale_dtype, c), value, total[c]);
    }
  }
  static void scaleSums(int32_t correction, float scale, const float* weights, std::byte* sums) {
    for (size_t c = 0; c < kPanelCols; ++c) {
      int32_t sum;
      std::memcpy(&sum, sums + 4 * c, sizeof sum);
      const float output = std::fma(weights[c], static_cast<float>(sum + correction) * scale, 0.0f);
      std::memcpy(sums + 4 * c, &output, sizeof output);
    }
  }
  template <DType kType>
  static void packWholeRows(const float* const* rows, int count, int64_t inputs, void* tile) {
    using tiles::per_token::Digits;
    const WeightFormat format = formatOf<PerTokenForm>(kType);
    TokenRun* runs = tokenRuns<Digits>(tile, count, inputs);
    std::memset(tile, 0, reinterpret_cast<std::byte*>(runs) - static_cast<std::byte*>(tile));
    for (int r = 0; r < count; ++r) {
      const FixedRow row(rows[r], inputs, format);
      runs[r] = {row.scale[0], 0};
      for (int64_t i = 0; i < inputs; ++i) {
        const int fixed = row.fixed[static_cast<size_t>(i)];
        constexpr int64_t kUnit = kFixedUnit<true>;
        static_cast<Digits*>(tile)[i / kUnit * count + r].digit[0][i % kUnit] = static_cast<int8_t>(fixed);
        runs[r].correction -= fixedBias(kType) * fixed;
      }
    }
  }
  template <DType kType, class Form>
  static void packFixed(const float* const* rows, int count, int64_t inputs, void* tile) {
    using Digits = FixedDigits<Form::kDigits>;
    const WeightFormat format = formatOf<Form>(kType);
    auto* dst = static_cast<std::byte*>(tile);
    for (int64_t i = 0; i < inputs; i += kFixedRun, dst += count * kFixedBytes<Digits>) {
      auto* digits = reinterpret_cast<Digits*>(dst);
      auto* runs = reinterpret_cast<FixedRuns*>(digits + count);
      std::memset(dst, 0, static_cast<size_t>(count * kFixedBytes<Digits>));
      for (int r = 0; r < count; ++r) {
        const int64_t some = std::min(kFixedRun, inputs - i);
        const FixedRow row(rows[r] + i, some, format);
        for (int64_t input = 0; input < some; ++input) {
          const int fixed = row.fixed[static_cast<size_t>(input)];
          const int64_t n = input / Form::kRun;
          // The position of this input among its eight int4 inputs.
          const auto* place = std::find(kFixedOrder, kFixedOrder + 8, input % 8);
          const int64_t at = kType == DType::kInt4 ? input / 8 * 8 + (place - kFixedOrder) : input;
          const auto low = static_cast<int8_t>(fixed & 255);
          digits[r].digit[Form::kDigits - 1][at] = low;
          if (Form::kDigits > 1) digits[r].digit[0][at] = static_cast<int8_t>((fixed - low) / 256);
          runs[r].scale[n] = row.scale[static_cast<size_t>(n)];
          runs[r].correction[n] -= fixedBias(kType) * fixed;
        }
      }
    }
  }
};

const PanelKernels& emulated(const WeightFormat& format) {
  namespace quantised = tiles::quantised;
  if (format.activations == InputFormat::kInt8PerToken) return tiles::per_token::kKernels<EmulatedQuantised, 1>;
  return format.dtype == DType::kInt8 ? *quantised::kernelsOf<EmulatedQuantised, DType::kInt8>(format)
                                      : *quantised::kernelsOf<EmulatedQuantised, DType::kInt4>(format);
}

// x [rows, in] times packed integers [out, in]. The plain integers are read back from the packed form, which the tests
// of packRows cover.
struct Problem {
  int rows;
  int64_t in, out;
  WeightFormat format;
  std::vector<float> x;
  Guarded panels;
  std::vector<int> integers;
  std::vector<float> scales;

  Problem(Values& values, const WeightFormat& f, int num_rows, int64_t inputs, int64_t outputs)
      : rows(num_rows),
        in(inputs),
        out(outputs),
        format(f),
        x(values.reals(rows * in)),
        panels(static_cast<size_t>(packedBytes(format, out, in))) {
    const int64_t groups = format.group > 0 ? (in + format.group - 1) / format.group : 1;
    std::vector<uint8_t> bytes(static_cast<size_t>((format.dtype == DType::kInt4 ? (out + 1) / 2 : out) * in));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(values.integer(0, 255));
    packRows(bytes.data(), format, out, in, 0, panels.data());
    // All scales are 1 at first, so that the values that are read back are the integers.
    const std::vector<float> ones(static_cast<size_t>(out * groups), 1.0f);
    packScales(ones.data(), DType::kFloat32, format, out, in, 0, panels.data());
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t o = 0; o < out; ++o) {
      unpackRow({panels.data(), format, out, in}, o, row.data());
      for (const float value : row) integers.push_back(static_cast<int>(value));
    }
    const auto given = kernel_test::asDtype(values.reals(out * groups, 0.005f, 0.02f), format.scale_dtype);
    packScales(given.data(), format.scale_dtype, format, out, in, 0, panels.data());
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        const int64_t group = format.group > 0 ? i / format.group : 0;
        scales.push_back(loadAsFloat(given.data(), format.scale_dtype, static_cast<size_t>(o * groups + group)));
      }
    }
  }
};

constexpr int64_t kAround = 20;  // floats after each row of y

void expectPlainIntegers(const Problem& p, Values& values, bool accumulate, int64_t skip, int64_t split) {
  const PanelKernels& kernels = emulated(p.format);
  Guarded tile(static_cast<size_t>(p.rows * kernels.rowBytes(p.in)));
  std::vector<const float*> rows;
  for (int r = 0; r < p.rows; ++r) rows.push_back(p.x.data() + r * p.in);
  kernels.pack(rows.data(), p.rows, p.in, tile.data());
  const auto before = values.reals(p.rows * (p.out + kAround));
  auto y = before;
  std::vector<float*> to;
  for (int r = 0; r < p.rows; ++r) to.push_back(y.data() + r * (p.out + kAround));
  for (int64_t i = 0; i < p.in; i += split) {
    PanelArgs args{EmulatedQuantised::unused};
    args.x = tile.data() + p.rows * kernels.bytesBefore(i);
    args.inputs = std::min(split, p.in - i);
    args.panels = p.panels.data() + panelBytes(p.format, i);
    args.panel_stride = panelBytes(p.format, p.in);
    args.group = packedGroup(p.format);
    args.scale_dtype = p.format.scale_dtype;
    args.y = to.data();
    args.skip = skip;
    args.cols = p.out;
    args.accumulate = accumulate || i > 0;
    args.stream = accumulate;
    kernels.run[p.rows](args);
  }
  for (int r = 0; r < p.rows; ++r) {
    const FixedRow fixed(rows[static_cast<size_t>(r)], p.in, p.format);
    for (int64_t o = 0; o < p.out + kAround; ++o) {
      const auto at = static_cast<size_t>(r * (p.out + kAround) + o);
      float expected = before[at];
      if (o >= skip && o < p.out) {
        expected = fixed.dot(&p.integers[static_cast<size_t>(o * p.in)], &p.scales[static_cast<size_t>(o * p.in)],
                             accumulate ? before[at] : 0.0f);
      }
      ASSERT_EQ(y[at], expected) << p.rows << " rows, " << p.in << " -> " << p.out << ", row " << r << " column " << o;
    }
  }
}

class TileQuantisedTest : public testing::TestWithParam<WeightFormat> {};

TEST_P(TileQuantisedTest, EveryNumberOfRowsHasTheBitsOfPlainIntegers) {
  Values values;
  for (int rows = 1; rows <= tiles::kTileRows; ++rows) {
    for (const int64_t in : {1, 5, 9, 31, 64, 65, 127, 130, 203}) {
      const int64_t out = rows % 3 == 0 ? 50 : rows % 3 == 1 ? 17 : 32;
      const Problem p(values, GetParam(), rows, in, out);
      const bool accumulate = in % 2 == 0 && !emulated(p.format).wholeRows();
      expectPlainIntegers(p, values, accumulate, accumulate ? rows % 16 : 0, in);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(TileQuantisedTest, CallsOverMultiplesOfAScaleRunAreOneChain) {
  Values values;
  const int64_t in = 2 * kScaleRun + 70, split = emulated(GetParam()).wholeRows() ? in : kScaleRun;
  for (const int rows : {1, 16, 21}) {
    expectPlainIntegers(Problem(values, GetParam(), rows, in, 33), values, false, 0, split);
  }
}

// Computes y with PanelKernels::run.
void multiplyTile(const PanelKernels& kernels, const Problem& p, const float* const* rows, int count, float* const* y) {
  std::vector<std::byte> tile(static_cast<size_t>(count * kernels.rowBytes(p.in)));
  kernels.pack(rows, count, p.in, tile.data());
  PanelArgs args{EmulatedQuantised::unused};
  args.x = tile.data();
  args.inputs = p.in;
  args.panels = p.panels.data();
  args.panel_stride = panelBytes(p.format, p.in);
  args.group = packedGroup(p.format);
  args.scale_dtype = p.format.scale_dtype;
  args.y = y;
  args.cols = p.out;
  kernels.run[count](args);
}

void expectBlockHasTheBitsOfTiles(const Problem& p, Values& values) {
  const PanelKernels& kernels = emulated(p.format);
  ASSERT_EQ(p.in % kernels.block_inputs, 0);
  const int tiles = (p.rows + kBlockTileRows - 1) / kBlockTileRows;
  const int in_last = p.rows - (tiles - 1) * kBlockTileRows;
  const int padded = (in_last + kBlockPadding - 1) / kBlockPadding * kBlockPadding;
  const int64_t tile_stride = kBlockTileRows * kernels.rowBytes(p.in);
  Guarded x(static_cast<size_t>((tiles - 1) * tile_stride + padded * kernels.rowBytes(p.in)));
  Guarded scratch(kernels.block_scratch(tiles, p.in, (p.out + kPanelCols - 1) / kPanelCols));
  const int64_t stride = (p.out + kAround + 15) / 16 * 16;
  const auto before = values.reals(p.rows * stride);
  auto expected = before;
  // Rows are aligned to cache lines, so that they may be written with non-temporal stores.
  const AlignedBuffer memory(before.size() * sizeof(float));
  const std::span<float> y(memory.as<float>(), before.size());
  std::copy(before.begin(), before.end(), y.begin());
  std::vector<float*> to, expected_to;
  std::vector<const float*> rows;
  for (int r = 0; r < p.rows; ++r) {
    to.push_back(y.data() + r * stride);
    expected_to.push_back(expected.data() + r * stride);
    rows.push_back(p.x.data() + r * p.in);
  }
  for (int t = 0; t < tiles; ++t) {
    const int count = std::min(kBlockTileRows, p.rows - t * kBlockTileRows);
    multiplyTile(kernels, p, rows.data() + t * kBlockTileRows, count, expected_to.data() + t * kBlockTileRows);
    std::vector<const float*> of_tile(rows.begin() + t * kBlockTileRows, rows.begin() + t * kBlockTileRows + count);
    of_tile.resize(static_cast<size_t>(t + 1 < tiles ? kBlockTileRows : padded), rows[0]);
    kernels.pack(of_tile.data(), static_cast<int>(of_tile.size()), p.in, x.data() + t * tile_stride);
  }
  BlockArgs args{EmulatedQuantised::unused};
  args.x = x.data();
  args.tile_stride = tile_stride;
  args.rows = p.rows;
  args.inputs = p.in;
  args.panels = p.panels.data();
  args.panel_stride = panelBytes(p.format, p.in);
  args.group = packedGroup(p.format);
  args.scale_dtype = p.format.scale_dtype;
  args.y = to.data();
  args.cols = p.out;
  args.keep_y = p.rows % 2 == 0;
  args.next = p.rows % 3 == 0 ? p.panels.data() : nullptr;
  args.scratch = scratch.data();
  kernels.block(args);
  for (size_t i = 0; i < y.size(); ++i) {
    ASSERT_EQ(y[i], expected[i]) << p.rows << " rows, " << p.in << " -> " << p.out << ", row "
                                 << i / static_cast<size_t>(stride) << " column " << i % static_cast<size_t>(stride);
  }
}

TEST_P(TileQuantisedTest, BlocksHaveTheBitsOfTiles) {
  Values values;
  const int64_t unit = emulated(GetParam()).block_inputs;
  const auto inputs = [&](int64_t most) { return values.integer(1, most / unit) * unit; };
  for (const int rows : {1, 16, 17, 32, 33, 49, 64, 95, 130, 256}) {
    const int64_t out = values.integer(1, 70);
    expectBlockHasTheBitsOfTiles(Problem(values, GetParam(), rows, inputs(rows < 50 ? 1152 : 256), out), values);
    if (HasFatalFailure()) return;
  }
}

TEST_P(TileQuantisedTest, BlocksOfSeveralSectionsHaveTheBitsOfTiles) {
  Values values;
  for (const int64_t in : {2176, 5632}) expectBlockHasTheBitsOfTiles(Problem(values, GetParam(), 40, in, 35), values);
}

#if defined(__x86_64__)
// The processor's kernels are the same templates, or those of VNNI.
TEST_P(TileQuantisedTest, TheProcessorsKernelsAreOfTheSameShape) {
  const WeightFormat& format = GetParam();
  const bool int8 = format.dtype == DType::kInt8;
  const PanelKernels& processor = int8 ? *int8TileKernels(format) : *int4TileKernels(format);
  const PanelKernels& vnni = int8 ? *int8VnniKernels(format) : *int4VnniKernels(format);
  const PanelKernels& ours = emulated(GetParam());
  EXPECT_EQ(processor.max_rows, ours.max_rows);
  EXPECT_EQ(processor.fixed_run, ours.fixed_run);
  EXPECT_EQ(processor.rowBytes(1000), ours.rowBytes(1000));
  for (int rows = 1; rows <= processor.max_rows; ++rows) {
    EXPECT_NE(processor.run[rows], nullptr);
    const bool by_vnni = rows <= vnni.max_rows && processor.run[rows] == vnni.run[rows];
    EXPECT_EQ(processor.passes[rows], by_vnni ? vnni.passes[rows] : ours.passes[rows]);
  }
}
#endif

std::vector<WeightFormat> formats() {
  std::vector<WeightFormat> all;
  for (const DType dtype : {DType::kInt8, DType::kInt4}) {
    for (const InputFormat activations : {InputFormat::kInt16, InputFormat::kInt8}) {
      for (const int64_t group : {0, 32, 64, 128}) {
        all.push_back({dtype, group, group == 64 ? DType::kFloat16 : DType::kBFloat16, activations});
      }
      all.push_back({dtype, 256, DType::kFloat32, activations});
    }
  }
  all.push_back({DType::kInt8, 0, DType::kBFloat16, InputFormat::kInt8PerToken});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Formats, TileQuantisedTest, testing::ValuesIn(formats()), [](const auto& info) {
  return fmt::format("{}_{}_{}", dtypeName(info.param.dtype), info.param.group,
                     inputFormatName(info.param.activations));
});

}  // namespace
}  // namespace chorus
