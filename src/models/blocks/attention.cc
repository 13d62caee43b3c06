#include "models/blocks/attention.h"

namespace chorus {

std::vector<SlotNeed> attentionNeeds(const AttentionSpec& spec, int64_t hidden_size) {
  std::vector<SlotNeed> needs = {{slotOf(LinearId::kQkv), spec.heads.qkvWidth(), hidden_size},
                                 {slotOf(LinearId::kDense), hidden_size, spec.heads.width()}};
  if (spec.qk_norm == QkNorm::kPerHead) {
    needs.push_back({slotOf(NormId::kQuery), spec.heads.size});
    needs.push_back({slotOf(NormId::kKey), spec.heads.size});
  } else if (spec.qk_norm == QkNorm::kWholeRow) {
    needs.push_back({slotOf(NormId::kQuery), spec.all_heads.width()});
    needs.push_back({slotOf(NormId::kKey), spec.all_heads.keyWidth()});
  }
  return needs;
}

namespace {

// The sums of squares of each row's queries and keys over all ranks, [rows, 2], in activations.hidden.
Matrix rowSquares(const LayerContext& context, const AttentionSpec& spec, const Matrix& qkv) {
  const Heads& heads = spec.heads;
  const Matrix squares = context.activations.squares(qkv.rows);
  const float* bias = context.weights[LinearId::kQkv].bias;
  context.backend.rowSquares(
      {.x = columnsOf(qkv, 0, heads.width()), .bias = bias, .squares = squares.row(0), .stride = squares.stride},
      context.step, context.stream);
  context.backend.rowSquares({.x = columnsOf(qkv, heads.width(), heads.keyWidth()),
                              .bias = bias == nullptr ? nullptr : bias + heads.width(),
                              .squares = squares.row(0) + 1,
                              .stride = squares.stride},
                             context.step, context.stream);
  context.sumOverRanks(squares);
  return squares;
}

HeadNorms headNorms(const LayerContext& context, const AttentionSpec& spec, const NormSpec& norm, const Matrix& qkv) {
  if (spec.qk_norm == QkNorm::kNone) return {};
  HeadNorms norms = {.query = context.weights[NormId::kQuery].weight,
                     .key = context.weights[NormId::kKey].weight,
                     .epsilon = norm.epsilon,
                     .query_groups = context.adapters.norm(context.layer, NormId::kQuery),
                     .key_groups = context.adapters.norm(context.layer, NormId::kKey)};
  if (spec.qk_norm == QkNorm::kPerHead) return norms;
  // If several ranks hold the same key head, the sum counts its squares once for each rank, and so does key_count.
  const int64_t ranks = spec.all_heads.queries / spec.heads.queries;
  norms.row_squares = rowSquares(context, spec, qkv).row(0);
  norms.query_count = ranks * spec.heads.width();
  norms.key_count = ranks * spec.heads.keyWidth();
  norms.query_begin = spec.first_query * spec.heads.size;
  norms.key_begin = spec.first_kv * spec.heads.size;
  return norms;
}
}  // namespace

void runAttention(const LayerContext& context, const AttentionSpec& spec, const NormSpec& norm,
                  const PositionTables& tables, const KvLayer& kv, const ConstMatrix& x, const Matrix& out) {
  const Heads& heads = spec.heads;
  const Matrix qkv = context.activations.wide(x.rows, heads.qkvWidth());
  const Matrix attended = context.activations.hidden(x.rows, heads.width());
  context.linear(LinearId::kQkv, x, qkv);
  // `attended` has the same memory as the sums of squares, which are read before attention writes it.
  const HeadNorms norms = headNorms(context, spec, norm, qkv);
  context.backend.kvWrite({.qkv = qkv,
                           .bias = context.weights[LinearId::kQkv].bias,
                           .num_heads = heads.queries,
                           .norms = norms,
                           .rope = tables.rope,
                           .kv = kv,
                           .query_scales = tables.query_scales},
                          context.step, context.stream);
  context.backend.attention({.q = columnsOf(qkv, 0, heads.width()),
                             .num_heads = heads.queries,
                             .mask = {.window = spec.window},
                             .score = {.scale = spec.scale, .softcap = spec.softcap, .slopes = tables.slopes},
                             .kv = kv,
                             .out = attended},
                            context.step, context.stream);
  context.linear(LinearId::kDense, attended, out);
}

}  // namespace chorus
