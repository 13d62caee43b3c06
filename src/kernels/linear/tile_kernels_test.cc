// Tests the AMX kernels on emulated registers, so that machines without AMX test them too. On a machine with AMX,
// LinearTest runs them on the processor's registers.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "kernels/guarded_memory.h"
#include "kernels/linear/emulated_tiles.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/panel_formats.h"
#include "kernels/test_util.h"

namespace chorus {
namespace {

using kernel_test::Guarded;
using kernel_test::Values;
using tiles::EmulatedTiles;

constexpr const PanelKernels& kKernels = tiles::kKernels<EmulatedTiles>;

std::vector<float> rounded(std::vector<float> values) {
  const auto bytes = kernel_test::asDtype(values, DType::kBFloat16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = loadAsFloat(bytes.data(), DType::kBFloat16, i);
  return values;
}

// x [rows, in] times weights [out, in].
struct Problem {
  int rows;
  int64_t in, out;
  std::vector<float> x, w;
  Guarded panels;

  Problem(Values& values, int num_rows, int64_t inputs, int64_t outputs)
      : rows(num_rows),
        in(inputs),
        out(outputs),
        x(values.reals(rows * in)),
        w(rounded(values.reals(out * in))),
        panels(static_cast<size_t>(packedBytes(DType::kBFloat16, out, in))) {
    const auto bytes = kernel_test::asDtype(w, DType::kBFloat16);
    packRows(bytes.data(), DType::kBFloat16, out, in, 0, panels.data());
  }
  std::vector<const float*> rowPointers(int64_t from = 0) const {
    std::vector<const float*> pointers;
    for (int r = 0; r < rows; ++r) pointers.push_back(x.data() + r * in + from);
    return pointers;
  }
  PanelArgs args() const {
    PanelArgs a;
    a.inputs = in;
    a.panels = panels.data();
    a.panel_stride = panelBytes(DType::kBFloat16, in);
    a.input_stride = packedInputStride(DType::kBFloat16);
    a.cols = out;
    return a;
  }
};

// Returns y, rows of out + kAround floats. It starts as `before`, and the columns outside the product must keep those
// values.
constexpr int64_t kAround = 40;
std::vector<float> product(const Problem& p, PanelArgs args, const std::vector<float>& before, int64_t piece = 0) {
  Guarded tile(static_cast<size_t>(tileSize(p.rows, piece == 0 ? p.in : (p.in + piece - 1) / piece * piece)) * 2);
  if (piece == 0) {
    kKernels.pack(p.rowPointers().data(), p.rows, p.in, tile.data());
  } else {
    for (int64_t i = 0; i < p.in; i += piece) {
      std::vector<float> padded(static_cast<size_t>(p.rows * piece));
      std::vector<const float*> rows;
      for (int r = 0; r < p.rows; ++r) {
        std::copy_n(p.x.data() + r * p.in + i, std::min(piece, p.in - i), padded.data() + r * piece);
        rows.push_back(padded.data() + r * piece);
      }
      kKernels.pack(rows.data(), p.rows, piece, tile.data() + i * p.rows * 2);
    }
  }
  std::vector<float> y = before;
  std::vector<float*> rows;
  for (int r = 0; r < p.rows; ++r) rows.push_back(y.data() + r * (p.out + kAround));
  args.x = tile.data();
  args.x_piece = piece;
  args.y = rows.data();
  kKernels.run[p.rows](args);
  return y;
}

void expectProduct(const Problem& p, const PanelArgs& args, const std::vector<float>& before,
                   const std::vector<float>& y) {
  const auto x = rounded(p.x);
  for (int r = 0; r < p.rows; ++r) {
    for (int64_t o = 0; o < p.out + kAround; ++o) {
      const auto at = static_cast<size_t>(r * (p.out + kAround) + o);
      if (o < args.skip || o >= args.cols) {
        ASSERT_EQ(y[at], before[at]) << "row " << r << " column " << o << " is outside the product and must not change";
        continue;
      }
      double sum = args.accumulate ? before[at] : 0.0, size = std::abs(sum);
      for (int64_t i = 0; i < p.in; ++i) {
        const double term = double{x[static_cast<size_t>(r * p.in + i)]} * p.w[static_cast<size_t>(o * p.in + i)];
        sum += term;
        size += std::abs(term);
      }
      const double most = size * static_cast<double>(p.in + 4) * std::numeric_limits<float>::epsilon();
      ASSERT_NEAR(y[at], sum, most) << p.rows << " rows, " << p.in << " -> " << p.out << ", row " << r << " column "
                                    << o;
    }
  }
}

TEST(TileKernelsTest, EveryNumberOfRowsMatchesDoublePrecisionAtEveryEdge) {
  Values values;
  for (int rows = 1; rows <= kKernels.max_rows; ++rows) {
    for (const int64_t in : {1, 2, 3, 5, 16, 31, 32, 33, 64, 95, 130}) {
      for (const int64_t out : {1, 15, 16, 17, 32, 50}) {
        const Problem p(values, rows, in, out);
        const auto before = values.reals(rows * (out + kAround));
        for (const bool accumulate : {false, true}) {
          PanelArgs args = p.args();
          args.accumulate = accumulate;
          args.skip = accumulate ? std::min<int64_t>(out - 1, rows % 16) : 0;
          args.stream = accumulate;
          expectProduct(p, args, before, product(p, args, before));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The linear packs products with A like this: one panel of 16 columns at a time.
TEST(TileKernelsTest, RowsPackedInPiecesGiveTheSameBits) {
  Values values;
  for (const int rows : {1, 2, 15, 16, 17, 32}) {
    for (const int64_t in : {1, 3, 8, 16, 17, 33, 48, 64, 80}) {
      const Problem p(values, rows, in, 50);
      const std::vector<float> before(static_cast<size_t>(rows * (50 + kAround)), 1.0f);
      PanelArgs args = p.args();
      args.accumulate = true;
      const auto whole = product(p, args, before), pieces = product(p, args, before, kPanelCols);
      kernel_test::expectSameBits(pieces.data(), whole.data(), std::ssize(whole), fmt::format("{} x {}", rows, in));
    }
  }
}

TEST(TileKernelsTest, ARowHasTheBitsThatItHasAlone) {
  Values values;
  for (int rows = 1; rows <= kKernels.max_rows; ++rows) {
    const Problem p(values, rows, 150, 37);
    const std::vector<float> before(static_cast<size_t>(rows * (37 + kAround)), 0.0f);
    const auto y = product(p, p.args(), before);
    for (const int r : {0, rows / 2, rows - 1}) {
      std::vector<float> row(p.x.begin() + r * p.in, p.x.begin() + (r + 1) * p.in);
      const float* pointer = row.data();
      std::vector<std::byte> tile(static_cast<size_t>(tileSize(1, p.in)) * 2);
      kKernels.pack(&pointer, 1, p.in, tile.data());
      std::vector<float> alone(37 + kAround);
      float* out = alone.data();
      PanelArgs args = p.args();
      args.x = tile.data();
      args.y = &out;
      kKernels.run[1](args);
      kernel_test::expectSameBits(alone.data(), y.data() + r * (37 + kAround), 37, fmt::format("{} of {}", r, rows));
    }
  }
}

TEST(TileKernelsTest, CallsOverMultiplesOf32InputsAreOneChain) {
  Values values;
  for (const int rows : {1, 7, 16, 29}) {
    const Problem p(values, rows, 203, 40);
    std::vector<float> before(static_cast<size_t>(rows * (40 + kAround)), 0.0f);
    const auto whole = product(p, p.args(), before);
    std::vector<std::byte> tile(static_cast<size_t>(tileSize(rows, p.in)) * 2);
    std::vector<float*> y;
    for (int r = 0; r < rows; ++r) y.push_back(before.data() + r * (40 + kAround));
    for (int64_t from = 0, some = 96; from < p.in; from += some, some = 64) {
      PanelArgs args = p.args();
      args.inputs = std::min(some, p.in - from);
      kKernels.pack(p.rowPointers(from).data(), rows, args.inputs, tile.data() + from * rows * 2);
      args.x = tile.data() + from * rows * 2;
      args.panels = p.panels.data() + from / 2 * args.input_stride;
      args.y = y.data();
      args.accumulate = from > 0;
      kKernels.run[rows](args);
    }
    kernel_test::expectSameBits(before.data(), whole.data(), std::ssize(whole), fmt::format("{} rows", rows));
  }
}

TEST(TileKernelsTest, DenormalsAreZerosAndWhatIsNotFiniteStaysInItsRow) {
  Values values;
  Problem p(values, 20, 40, 16);
  const std::vector<float> before(static_cast<size_t>(20 * (16 + kAround)), 0.0f);
  const auto clean = product(p, p.args(), before);
  p.x[3 * 40 + 7] = std::numeric_limits<float>::infinity();
  p.x[18 * 40 + 39] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 40; ++i) p.x[static_cast<size_t>(5 * 40 + i)] = 1e-39f;
  const auto y = product(p, p.args(), before);
  for (int r = 0; r < 20; ++r) {
    const size_t at = static_cast<size_t>(r) * (16 + kAround);
    for (size_t o = 0; o < 16; ++o) {
      if (r == 3 || r == 18) {
        EXPECT_FALSE(std::isfinite(y[at + o]));
      } else {
        EXPECT_EQ(y[at + o], r == 5 ? 0.0f : clean[at + o]);
      }
    }
  }
}

TEST(TileKernelsTest, ColumnsAreScaled) {
  float y[] = {1, 2, 3};
  const float factors[] = {2, 0.5f, -1};
  kKernels.scale_columns(factors, y, 3);
  EXPECT_EQ((std::array{y[0], y[1], y[2]}), (std::array{2.0f, 1.0f, -3.0f}));
}

// The processor's kernels are the same templates. They must have the same tiles and passes, and a kernel for every
// number of rows.
#if defined(__x86_64__)
TEST(TileKernelsTest, TheProcessorsKernelsAreOfTheSameShape) {
  const PanelKernels& processor = *bf16TileKernels();
  EXPECT_EQ(processor.max_rows, kKernels.max_rows);
  EXPECT_EQ(processor.element_bytes, kKernels.element_bytes);
  EXPECT_FALSE(processor.takesRows());
  for (int rows = 1; rows <= processor.max_rows; ++rows) {
    EXPECT_NE(processor.run[rows], nullptr);
    EXPECT_EQ(processor.passes[rows], kKernels.passes[rows]);
  }
}
#endif

}  // namespace
}  // namespace chorus
