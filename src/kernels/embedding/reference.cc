#include <algorithm>

#include "kernels/embedding/embedding.h"

namespace chorus::reference {

void embedding(const EmbeddingArgs& args) {
  const int64_t cols = args.out.cols;
  const auto* table = static_cast<const std::byte*>(args.table.data);
  for (size_t i = 0; i < args.tokens.size(); ++i) {
    float* out = args.out.data + static_cast<int64_t>(i) * args.out.stride;
    const int64_t row = args.tokens[i] - args.table.first_token;
    if (row < 0 || row >= args.table.vocab) {
      std::fill(out, out + cols, 0.0f);
    } else {
      convertElements(table + row * cols * static_cast<int64_t>(dtypeSize(args.table.dtype)), args.table.dtype, out,
                      DType::kFloat32, static_cast<size_t>(cols));
    }
  }
}

void gatherRows(const GatherRowsArgs& args) {
  for (size_t i = 0; i < args.rows.size(); ++i) {
    const float* row = args.x.data + args.rows[i] * args.x.stride;
    std::copy(row, row + args.x.cols, args.out.data + static_cast<int64_t>(i) * args.out.stride);
  }
}

}  // namespace chorus::reference
