#include "models/blocks/attention.h"

namespace chorus {

std::vector<SlotNeed> attentionNeeds(const AttentionSpec& spec, int64_t hidden_size) {
  std::vector<SlotNeed> needs = {{slotOf(LinearId::kQkv), spec.heads.qkvWidth(), hidden_size},
                                 {slotOf(LinearId::kDense), hidden_size, spec.heads.width()}};
  if (spec.qk_norm == QkNorm::kPerHead) {
    needs.push_back({slotOf(NormId::kQuery), spec.heads.size});
    needs.push_back({slotOf(NormId::kKey), spec.heads.size});
  }
  return needs;
}

namespace {

HeadNorms headNorms(const LayerContext& context, const AttentionSpec& spec, const NormSpec& norm) {
  if (spec.qk_norm == QkNorm::kNone) return {};
  const auto groups = context.adapters.headNorms(context.layer);
  return {.query = context.weights[NormId::kQuery].weight,
          .key = context.weights[NormId::kKey].weight,
          .epsilon = norm.epsilon,
          .query_groups = groups.query,
          .key_groups = groups.key};
}
}  // namespace

void runAttention(const LayerContext& context, const AttentionSpec& spec, const NormSpec& norm,
                  const PositionTables& tables, const KvLayer& kv, const ConstMatrix& x, const Matrix& out) {
  const Heads& heads = spec.heads;
  const Matrix qkv = context.activations.wide(x.rows, heads.qkvWidth());
  const Matrix attended = context.activations.hidden(x.rows, heads.width());
  context.linear(LinearId::kQkv, allRowsOf(x), x, qkv);
  context.backend.kvWrite({.qkv = qkv,
                           .bias = context.weights[LinearId::kQkv].bias,
                           .num_heads = heads.queries,
                           .norms = headNorms(context, spec, norm),
                           .rope = tables.rope,
                           .kv = kv},
                          context.step, context.stream);
  context.backend.attention({.q = columnsOf(qkv, 0, heads.width()),
                             .num_heads = heads.queries,
                             .mask = {.window = spec.window},
                             .score = {.scale = spec.scale, .softcap = spec.softcap, .slopes = tables.slopes},
                             .kv = kv,
                             .out = attended},
                            context.step, context.stream);
  context.linear(LinearId::kDense, allRowsOf(x), attended, out);
}

}  // namespace chorus
