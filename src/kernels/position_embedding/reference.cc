#include <algorithm>

#include "kernels/position_embedding/add_positions.h"

namespace chorus {

void addPositions(const PositionEmbeddingArgs& args, const StepBatch& batch, int64_t begin, int64_t end) {
  const int64_t cols = args.x.cols;
  const auto row_bytes = cols * static_cast<int64_t>(dtypeSize(args.table.dtype));
  for (const SequenceSpan& sequence : batch.sequences) {
    const auto from = std::max<int64_t>(begin, sequence.row_begin);
    const auto to = std::min<int64_t>(end, int64_t{sequence.row_begin} + sequence.num_rows);
    for (int64_t row = from; row < to; ++row) {
      const int64_t position = sequence.first_position + row - sequence.row_begin;
      const std::byte* values = static_cast<const std::byte*>(args.table.data) + position * row_bytes;
      float* x = args.x.row(row);
      for (int64_t c = 0; c < cols; ++c) x[c] += loadAsFloat(values, args.table.dtype, static_cast<size_t>(c));
    }
  }
}

}  // namespace chorus

namespace chorus::reference {

void positionEmbedding(const PositionEmbeddingArgs& args, const StepBatch& batch) {
  addPositions(args, batch, 0, args.x.rows);
}

}  // namespace chorus::reference
