#include <algorithm>
#include <vector>

#include "kernels/embedding/look_up.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/panel_layout.h"
#include "kernels/row_groups.h"

namespace chorus {

void widenRow(const EmbeddingTable& table, int32_t token, int64_t cols, float* out) {
  const int64_t row = token - table.first_token;
  if (row < 0 || row >= table.vocab) {
    std::fill(out, out + cols, 0.0f);
    return;
  }
  const auto* data = static_cast<const std::byte*>(table.data);
  convertElements(data + row * cols * static_cast<int64_t>(dtypeSize(table.dtype)), table.dtype, out, DType::kFloat32,
                  static_cast<size_t>(cols));
}

void lookUpRows(const EmbeddingArgs& args, const StepBatch& batch, int64_t begin, int64_t end) {
  const auto groups = batch.groups[args.groups];
  const int64_t cols = args.out.cols;
  for (int64_t i = begin; i < end; ++i) {
    const int32_t token = batch.tokens[static_cast<size_t>(i)];
    float* out = args.out.row(i);
    const EmbeddingGroup* group = groupOf(groups, i);
    if (group != nullptr && group->replaced > 0) {
      const int32_t* tokens = group->replaced_tokens;
      const int64_t at = std::lower_bound(tokens, tokens + group->replaced, token) - tokens;
      if (at < group->replaced && tokens[at] == token) {
        std::copy_n(group->replaced_rows + at * cols, cols, out);
        continue;
      }
    }
    widenRow(group != nullptr && group->table.data != nullptr ? group->table : args.table, token, cols, out);
  }
}

void copyRows(const GatherRowsArgs& args, const StepBatch& batch, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t from = args.rows == RowsToGather::kAll ? i : batch.logits_rows[static_cast<size_t>(i)];
    std::copy_n(args.x.row(from), args.x.cols, args.out.row(i));
  }
}

}  // namespace chorus

namespace chorus::reference {

void embedding(const EmbeddingArgs& args, const StepBatch& batch) {
  const int64_t cols = args.out.cols;
  lookUpRows(args, batch, 0, batch.rows());
  for (const EmbeddingGroup& group : batch.groups[args.groups]) {
    for (const EmbeddingPart& part : group.parts) {
      std::vector<float> t(static_cast<size_t>(part.b.in)), b(t.size());
      for (const RowRange range : group.ranges) {
        for (int64_t r = range.begin; r < range.end; ++r) {
          float* out = args.out.row(r);
          widenRow(part.a, batch.tokens[static_cast<size_t>(r)], part.b.in, t.data());
          for (int64_t c = 0; c < cols; ++c) {
            unpackRow(part.b, c, b.data());
            float sum = 0;
            for (size_t i = 0; i < t.size(); ++i) sum += t[i] * b[i];
            out[c] += part.scale * sum;
            if (part.magnitude != nullptr) out[c] *= part.magnitude[c];
          }
        }
      }
    }
  }
}

void gatherRows(const GatherRowsArgs& args, const StepBatch& batch) { copyRows(args, batch, 0, args.out.rows); }

}  // namespace chorus::reference
