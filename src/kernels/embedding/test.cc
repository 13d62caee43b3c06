#include "kernels/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using EmbeddingTest = kernel_test::EveryVariant;
using GatherRowsTest = kernel_test::EveryVariant;

TEST_P(EmbeddingTest, RowsAreExactAndTokensOutsideTheShardAreZero) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  for (const DType dtype : dtypes()) {
    const int64_t vocab = 50, cols = 1027;
    const auto table = kernel_test::asDtype(values.reals(vocab * cols), dtype);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 120; ++i) tokens.push_back(static_cast<int32_t>(values.integer(0, 160)));
    std::vector<float> out(tokens.size() * cols, -1.0f);
    backend.embedding({{table.data(), dtype, vocab, 100}, tokens, kernel_test::view(out, 120, cols), {}}, *context, {});
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t row = tokens[i] - 100;
      for (int64_t c = 0; c < cols; ++c) {
        const float expected =
            row < 0 || row >= vocab ? 0.0f : loadAsFloat(table.data(), dtype, static_cast<size_t>(row * cols + c));
        ASSERT_EQ(out[i * cols + static_cast<size_t>(c)], expected) << "token " << tokens[i];
      }
    }
  }
}

TEST_P(GatherRowsTest, CopiesTheRowsAskedFor) {
  Values values;
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  auto x = values.reals(90 * 700);
  const std::vector<int32_t> rows = {0, 3, 3, 89, 41};
  std::vector<float> out(rows.size() * 700);
  backend.gatherRows({kernel_test::view(x, 90, 700), rows, kernel_test::view(out, 5, 700)}, *context, {});
  for (size_t i = 0; i < rows.size(); ++i) {
    kernel_test::expectSameBits(out.data() + i * 700, x.data() + rows[i] * 700, 700, "row");
  }
}

TEST_P(EmbeddingTest, NoTokensTouchNothing) {
  Backend& backend = newBackend(2);
  const auto context = backend.createContext();
  std::vector<float> table(8, 1.0f), out(4, -5.0f);
  backend.embedding({{table.data(), DType::kFloat32, 2, 0}, {}, kernel_test::view(out, 0, 4), {}}, *context, {});
  EXPECT_EQ(out, std::vector<float>(4, -5.0f));
}

CHORUS_FOR_EVERY_VARIANT(Embedding, EmbeddingTest);
CHORUS_FOR_EVERY_VARIANT(GatherRows, GatherRowsTest);
}  // namespace
}  // namespace chorus
