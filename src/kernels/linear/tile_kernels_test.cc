// Tests the AMX kernels on emulated registers, so that machines without AMX test them too. On a machine with AMX,
// LinearTest runs them on the processor's registers.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <limits>

#include "kernels/linear/linear.h"
#include "kernels/linear/panel_formats.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/testing/emulated_tiles.h"
#include "kernels/testing/guarded_memory.h"
#include "kernels/testing/test_util.h"

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
    PanelArgs a{EmulatedTiles::unused};
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

// The rows of a problem, packed as BlockArgs::x.
struct PackedBlock {
  Guarded x;
  int64_t tile_stride;

  explicit PackedBlock(const Problem& p)
      : x(static_cast<size_t>((p.rows + kBlockPadding - 1) / kBlockPadding * kBlockPadding * p.in * 2)),
        tile_stride(kBlockTileRows * p.in * 2) {
    const auto rows = p.rowPointers();
    for (int first = 0; first < p.rows; first += kBlockTileRows) {
      const int count = std::min(kBlockTileRows, p.rows - first);
      std::vector<const float*> tile(rows.begin() + first, rows.begin() + first + count);
      tile.resize(static_cast<size_t>((count + kBlockPadding - 1) / kBlockPadding * kBlockPadding), rows.back());
      kKernels.pack(tile.data(), static_cast<int>(tile.size()), p.in, x.data() + first / kBlockTileRows * tile_stride);
    }
  }
};

TEST(TileKernelsTest, ABlockHasTheBitsOfItsTiles) {
  Values values;
  struct Case {
    int rows;
    int64_t in, out;
  };
  // The cases cover one section and several, complete and incomplete pairs of panels, and last tiles that need one
  // register, need two, or are full.
  for (const Case& c : {Case{33, 32, 32},
                        {40, 544, 40},
                        {64, 1024, 16},
                        {100, 320, 50},
                        {129, 96, 65},
                        {144, 608, 33},
                        {256, 64, 96},
                        {70, 2080, 48},
                        {161, 4256, 17}}) {
    const Problem p(values, c.rows, c.in, c.out);
    const PackedBlock packed(p);
    const int tiles = (c.rows + kBlockTileRows - 1) / kBlockTileRows;
    const Guarded scratch(kKernels.block_scratch(tiles, c.in, (c.out + kPanelCols - 1) / kPanelCols));
    const int64_t width = (c.out + kAround + 15) / 16 * 16;
    for (const bool keep : {false, true}) {
      std::vector<float> memory(static_cast<size_t>(c.rows * width + 16), -5.0f);
      // Without `keep`, rows are aligned to cache lines, so that they are written with non-temporal stores.
      float* y = memory.data();
      while (reinterpret_cast<uintptr_t>(y) % 64 != (keep ? 4 : 0)) ++y;
      std::vector<float*> rows;
      for (int r = 0; r < c.rows; ++r) rows.push_back(y + r * width);
      BlockArgs args{.tiles = EmulatedTiles::unused,
                     .x = packed.x.data(),
                     .tile_stride = packed.tile_stride,
                     .rows = c.rows,
                     .inputs = c.in,
                     .panels = p.panels.data(),
                     .panel_stride = panelBytes(DType::kBFloat16, c.in),
                     .y = rows.data(),
                     .cols = c.out,
                     .keep_y = keep,
                     .scratch = scratch.data()};
      kKernels.block(args);
      for (int first = 0; first < c.rows; first += kBlockTileRows) {
        Problem tile(values, std::min(kBlockTileRows, c.rows - first), c.in, 1);
        tile.out = c.out;
        tile.x.assign(p.x.begin() + first * c.in, p.x.begin() + (first + tile.rows) * c.in);
        const auto expected =
            product(tile, p.args(), std::vector<float>(static_cast<size_t>(tile.rows * (c.out + kAround)), -5.0f));
        for (int r = 0; r < tile.rows; ++r) {
          // The columns after the product keep their values.
          kernel_test::expectSameBits(rows[static_cast<size_t>(first + r)], expected.data() + r * (c.out + kAround),
                                      c.out + kAround,
                                      fmt::format("row {} of {}, {} -> {}", first + r, c.rows, c.in, c.out));
        }
      }
    }
  }
}

// A block product with LoRA terms has the bits of a tile's product to which PanelKernels::run adds the terms. Two
// groups share the second tile.
TEST(TileKernelsTest, TermsOfABlockContinueItsSums) {
  Values values;
  constexpr int kRows = 70;
  constexpr int64_t kIn = 96, kOut = 64;
  const Problem base(values, kRows, kIn, kOut);
  const PackedBlock packed(base);
  struct Group {
    int begin, end;
    int64_t rank, col_begin, cols;
  };
  const Group groups[] = {{0, 45, 16, 0, 64}, {45, 70, 41, 16, 32}};
  // The result of each group's rows alone: the base's product, then the term's.
  std::vector<float> expected(static_cast<size_t>(kRows * kOut));
  std::deque<Guarded> memory;
  std::vector<std::vector<BlockTerm>> terms(3);
  for (const Group& group : groups) {
    const Problem term(values, group.end - group.begin, group.rank, group.cols);
    memory.emplace_back(static_cast<size_t>(packedBytes(DType::kBFloat16, group.cols, group.rank)));
    std::copy_n(term.panels.data(), packedBytes(DType::kBFloat16, group.cols, group.rank), memory.back().data());
    const std::byte* b = memory.back().data();
    for (int row = group.begin; row < group.end; ++row) {
      const auto call = [&](const Problem& p, const float* x, const std::byte* panels, float* y, bool accumulate) {
        std::vector<std::byte> tile(static_cast<size_t>(tileSize(1, p.in)) * 2);
        kKernels.pack(&x, 1, p.in, tile.data());
        PanelArgs args = p.args();
        args.panels = panels;
        args.x = tile.data();
        args.y = &y;
        args.accumulate = accumulate;
        kKernels.run[1](args);
      };
      float* y = expected.data() + row * kOut;
      call(base, base.x.data() + row * kIn, base.panels.data(), y, false);
      call(term, term.x.data() + (row - group.begin) * group.rank, b, y + group.col_begin, true);
    }
    for (int tile = 0; tile < 3; ++tile) {
      const int first = tile * kBlockTileRows, count = std::min(kBlockTileRows, kRows - first);
      if (std::max(first, group.begin) >= std::min(first + count, group.end)) continue;
      const int64_t padded = (group.rank + 31) / 32 * 32;
      const int packed_rows = (count + kBlockPadding - 1) / kBlockPadding * kBlockPadding;
      std::vector<float> t(static_cast<size_t>(packed_rows * padded), 0.0f);
      std::vector<const float*> rows;
      for (int r = 0; r < packed_rows; ++r) {
        const int row = first + r;
        if (r < count && row >= group.begin && row < group.end) {
          std::copy_n(term.x.data() + (row - group.begin) * group.rank, group.rank, t.data() + r * padded);
        }
        rows.push_back(t.data() + r * padded);
      }
      memory.emplace_back(t.size() * 2);
      kKernels.pack(rows.data(), packed_rows, padded, memory.back().data());
      terms[static_cast<size_t>(tile)].push_back({memory.back().data(), group.rank, b, group.col_begin, group.cols});
    }
  }
  const std::vector<std::span<const BlockTerm>> lists(terms.begin(), terms.end());
  const Guarded scratch(kKernels.block_scratch(3, kIn, kOut / kPanelCols));
  // All panels, and the second half of them alone.
  for (const int64_t first_col : {0, 32}) {
    std::vector<float> y(static_cast<size_t>(kRows * kOut));
    std::vector<float*> rows;
    for (int r = 0; r < kRows; ++r) rows.push_back(y.data() + r * kOut + first_col);
    const int64_t panel_stride = panelBytes(DType::kBFloat16, kIn);
    kKernels.block({.tiles = EmulatedTiles::unused,
                    .x = packed.x.data(),
                    .tile_stride = packed.tile_stride,
                    .rows = kRows,
                    .inputs = kIn,
                    .panels = base.panels.data() + first_col / kPanelCols * panel_stride,
                    .panel_stride = panel_stride,
                    .y = rows.data(),
                    .cols = kOut - first_col,
                    .terms = lists,
                    .first_col = first_col,
                    .keep_y = true,
                    .scratch = scratch.data()});
    for (int r = 0; r < kRows; ++r) {
      kernel_test::expectSameBits(rows[static_cast<size_t>(r)], expected.data() + r * kOut + first_col,
                                  kOut - first_col, fmt::format("row {}", r));
    }
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
