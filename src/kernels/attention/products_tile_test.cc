// Tests the AMX products on emulated registers, so that machines without AMX test them too. On a machine with AMX,
// AttentionTest runs them on the processor's registers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/attention/products_tile-inl.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/testing/emulated_tiles.h"
#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;

struct EmulatedAttention : tiles::EmulatedTiles {
  static void pack(const float* const* rows, int count, int64_t inputs, void* dst) {
    auto* to = static_cast<std::byte*>(dst);
    for (int64_t piece = 0; piece < inputs; piece += kAttentionRun) {
      for (int r = 0; r < count; ++r, to += kAttentionRun * 2) {
        std::memset(to, 0, kAttentionRun * 2);
        for (int64_t i = 0; i < kAttentionRun; i += 32) {
          const int64_t some = std::clamp<int64_t>(inputs - piece - i, 0, 32);
          if (some > 0) round(rows[r] + piece + i, some, to + i * 2);
        }
      }
    }
  }
};
constexpr const AttentionProducts& kProducts = tiles::attention::kProducts<EmulatedAttention>;

// x [rows, inputs] times w [inputs, cols], both of bfloat16; w holds NaN after its last input.
struct Problem {
  int rows;
  int64_t inputs, cols;
  std::vector<float> x, w;
  std::vector<bf16> panels;

  Problem(Values& values, int num_rows, int64_t num_inputs, int64_t num_panels)
      : rows(num_rows), inputs(num_inputs), cols(num_panels * kPanelCols) {
    const auto rounded = [](std::vector<float> all) {
      const auto bytes = kernel_test::asDtype(all, DType::kBFloat16);
      for (size_t i = 0; i < all.size(); ++i) all[i] = loadAsFloat(bytes.data(), DType::kBFloat16, i);
      return all;
    };
    x = rounded(values.reals(rows * inputs));
    w = rounded(values.reals(inputs * cols));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const int64_t pairs = (inputs + 1) / 2;
    panels.resize(static_cast<size_t>(pairs * cols * 2));
    for (int64_t i = 0; i < 2 * pairs; ++i) {
      for (int64_t c = 0; c < cols; ++c) {
        const float* value = i < inputs ? &w[static_cast<size_t>(i * cols + c)] : &nan;
        convertElements(value, DType::kFloat32, &panels[static_cast<size_t>(i / 2 * cols * 2 + c * 2 + i % 2)],
                        DType::kBFloat16, 1);
      }
    }
  }

  // Computes rows [first, first + count).
  std::vector<float> run(int first, int count) const {
    std::vector<float> y(static_cast<size_t>(rows * cols), std::numeric_limits<float>::quiet_NaN());
    std::vector<const float*> pointers;
    for (int r = first; r < first + count; ++r) pointers.push_back(x.data() + r * inputs);
    // Pieces lie apart, as the runs of a cache do.
    constexpr int64_t kApart = 192;
    const int64_t piece_bytes = kProducts.tileBytes(count, kAttentionRun);
    std::vector<std::byte> packed(static_cast<size_t>(kProducts.tileBytes(count, inputs)));
    kProducts.pack(pointers.data(), count, inputs, packed.data());
    std::vector<std::byte> tile;
    for (int64_t at = 0; at < std::ssize(packed); at += piece_bytes) {
      tile.insert(tile.end(), packed.begin() + at, packed.begin() + at + piece_bytes);
      tile.insert(tile.end(), kApart, std::byte{0xff});
    }
    AttentionProduct args{EmulatedAttention::unused};
    args.x = tile.data();
    args.x_stride = piece_bytes + kApart;
    args.inputs = inputs;
    std::vector<std::vector<bf16>> buffers;
    std::vector<const std::byte*> pieces;
    for (int64_t input = 0; input < inputs; input += kAttentionRun) {
      const int64_t end = std::min(std::ssize(panels), (input + kAttentionRun) * cols);
      buffers.emplace_back(panels.begin() + input * cols, panels.begin() + end);
      pieces.push_back(reinterpret_cast<const std::byte*>(buffers.back().data()));
    }
    args.w = args.next = pieces.data();
    args.input_stride = cols * 4;
    args.panels = cols / kPanelCols;
    args.y = y.data() + first * cols;
    args.y_stride = cols;
    kProducts.run[count](args);
    return y;
  }
};

TEST(AttentionTilesTest, EveryNumberOfRowsMatchesDoublePrecisionAtEveryEdge) {
  Values values;
  for (int rows = 1; rows <= kProducts.max_rows; ++rows) {
    for (const int64_t inputs : {1, 2, 3, 16, 31, 32, 33, 62, 63, 64, 80, 95, 128, 130}) {
      for (const int64_t panels : {1, 3, 4, 5, 8}) {
        const Problem p(values, rows, inputs, panels);
        const auto y = p.run(0, rows);
        for (int64_t at = 0; at < rows * p.cols; ++at) {
          const int64_t r = at / p.cols, c = at % p.cols;
          double sum = 0, size = 0;
          for (int64_t i = 0; i < inputs; ++i) {
            const double term =
                double{p.x[static_cast<size_t>(r * inputs + i)]} * p.w[static_cast<size_t>(i * p.cols + c)];
            sum += term;
            size += std::abs(term);
          }
          const double most = size * static_cast<double>(inputs + 4) * std::numeric_limits<float>::epsilon();
          ASSERT_NEAR(y[static_cast<size_t>(at)], sum, most)
              << rows << " rows, " << inputs << " inputs, " << panels << " panels, row " << r << " column " << c;
        }
      }
    }
  }
}

TEST(AttentionTilesTest, ARowHasTheBitsThatItHasAlone) {
  Values values;
  for (int rows = 2; rows <= kProducts.max_rows; ++rows) {
    const Problem p(values, rows, 90, 5);
    const auto all = p.run(0, rows);
    for (const int r : {0, rows / 2, rows - 1}) {
      const auto alone = p.run(r, 1);
      kernel_test::expectSameBits(alone.data() + r * p.cols, all.data() + r * p.cols, p.cols,
                                  fmt::format("{} of {}", r, rows));
    }
  }
}

// The cached part of a run grows token by token: positions that a row does not attend to either have weight zero or are
// missing. Both must give the same bits.
TEST(AttentionTilesTest, InputsOfZeroAreAsInputsThatAreNotThere) {
  Values values;
  for (int64_t inputs = 1; inputs < kAttentionRun; ++inputs) {
    const Problem p(values, 3, inputs, 4);
    Problem longer(values, 3, kAttentionRun, 4);
    std::fill(longer.x.begin(), longer.x.end(), 0.0f);
    for (int r = 0; r < 3; ++r) {
      std::copy_n(p.x.begin() + r * inputs, inputs, longer.x.begin() + r * kAttentionRun);
    }
    for (int64_t i = 0; i < inputs; ++i) {
      for (int64_t c = 0; c < p.cols; ++c) {
        longer.panels[static_cast<size_t>(i / 2 * p.cols * 2 + c * 2 + i % 2)] =
            p.panels[static_cast<size_t>(i / 2 * p.cols * 2 + c * 2 + i % 2)];
      }
    }
    const auto known = p.run(0, 3), whole = longer.run(0, 3);
    kernel_test::expectSameBits(known.data(), whole.data(), std::ssize(whole), fmt::format("{} inputs", inputs));
  }
}

// The processor's products are the same templates. They must have a product for every number of rows and take the same
// tiles.
#if defined(__x86_64__)
TEST(AttentionTilesTest, TheProcessorsProductsAreOfTheSameShape) {
  const AttentionProducts& processor = *bf16TileAttentionProducts();
  EXPECT_EQ(processor.max_rows, kProducts.max_rows);
  EXPECT_EQ(processor.element_bytes, kProducts.element_bytes);
  for (int rows = 1; rows <= processor.max_rows; ++rows) EXPECT_NE(processor.run[rows], nullptr);
}
#endif

}  // namespace
}  // namespace chorus
