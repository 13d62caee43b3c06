#include "kernels/testing/test_util.h"

namespace chorus {
namespace {

using kernel_test::Values;
using PositionEmbeddingTest = kernel_test::EveryVariant;

// Sequences of 1, 5 and 37 rows, in the middle and at the beginning of their text.
TEST_P(PositionEmbeddingTest, AddsTheRowOfEachPosition) {
  Values values;
  const std::vector<SequenceSpan> sequences = {
      {.row_begin = 0, .num_rows = 5, .first_position = 0, .block_tables = {}},
      {.row_begin = 5, .num_rows = 37, .first_position = 3, .block_tables = {}},
      {.row_begin = 42, .num_rows = 1, .first_position = 39, .block_tables = {}}};
  const int64_t rows = 43, positions = 40;
  const std::vector<int32_t> tokens(static_cast<size_t>(rows));
  for (const int threads : {1, 3}) {
    Backend& backend = newBackend(threads);
    const auto context = backend.createContext();
    backend.prepare({tokens, sequences, {}}, *context);
    for (const DType dtype : dtypes()) {
      for (const int64_t cols : {1, 15, 16, 17, 1030}) {
        const auto table = kernel_test::asDtype(values.reals(positions * cols), dtype);
        auto x = values.reals(rows * cols);
        auto expected = x;
        for (const SequenceSpan& sequence : sequences) {
          for (int64_t i = 0; i < sequence.num_rows; ++i) {
            for (int64_t c = 0; c < cols; ++c) {
              const auto at = static_cast<size_t>((sequence.first_position + i) * cols + c);
              expected[static_cast<size_t>((sequence.row_begin + i) * cols + c)] +=
                  loadAsFloat(table.data(), dtype, at);
            }
          }
        }
        backend.positionEmbedding({{table.data(), dtype, positions, 0}, kernel_test::view(x, rows, cols)}, *context,
                                  {});
        kernel_test::expectSameBits(x.data(), expected.data(), rows * cols, fmt::format("{} columns", cols));
      }
    }
  }
}

CHORUS_FOR_EVERY_VARIANT(PositionEmbedding, PositionEmbeddingTest);
}  // namespace
}  // namespace chorus
