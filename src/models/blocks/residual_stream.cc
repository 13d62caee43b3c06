#include "models/blocks/residual_stream.h"

namespace chorus {

std::vector<SlotNeed> normNeeds(const NormSpec& norm, NormId id, int64_t size) {
  std::vector<SlotNeed> needs = {{slotOf(id), size}};
  if (norm.bias) needs.push_back({slotOf(id).bias(), size});
  return needs;
}

std::vector<SlotNeed> residualNeeds(ResidualForm form, const NormSpec& norm, int64_t hidden_size) {
  std::vector<SlotNeed> needs;
  const auto add = [&](std::initializer_list<NormId> ids) {
    for (const NormId id : ids) {
      for (const SlotNeed& need : normNeeds(norm, id, hidden_size)) needs.push_back(need);
    }
  };
  switch (form) {
    case ResidualForm::kPre:
    case ResidualForm::kParallel:
      add({NormId::kAttentionIn, NormId::kMlpIn});
      break;
    case ResidualForm::kSandwich:
      add({NormId::kAttentionIn, NormId::kAttentionOut, NormId::kMlpIn, NormId::kMlpOut});
      break;
    case ResidualForm::kPost:
    case ResidualForm::kNormedSum:
      add({NormId::kAttentionOut, NormId::kMlpOut});
      break;
    case ResidualForm::kParallelShared:
      add({NormId::kAttentionIn});
      break;
  }
  return needs;
}

ResidualStream::Norm ResidualStream::normOf(const LayerContext& context, NormId id) {
  return {context.weights[id], context.adapters.norm(context.layer, id)};
}

void ResidualStream::apply(const LayerContext& context, const Addition& addition, const Norm& norm,
                           const Matrix& residual, const Matrix& y) const {
  if (norm_.kind == NormKind::kLayerNorm) {
    context.backend.layerNorm({.residual = residual,
                               .delta = addition.delta,
                               .bias = addition.bias,
                               .delta_scale = addition.scale,
                               .weight = norm.base.weight,
                               .norm_bias = norm.base.bias,
                               .epsilon = norm_.epsilon,
                               .y = y,
                               .groups = norm.groups},
                              context.step, context.stream);
    return;
  }
  context.backend.rmsNorm({.residual = residual,
                           .delta = addition.delta,
                           .bias = addition.bias,
                           .delta_scale = addition.scale,
                           .weight = norm.base.weight,
                           .epsilon = norm_.epsilon,
                           .y = y,
                           .groups = norm.groups},
                          context.step, context.stream);
}

ConstMatrix ResidualStream::normed(const LayerContext& context, NormId id) {
  apply(context, pending_, normOf(context, id), residual_, normed_);
  pending_ = {};
  return normed_;
}

ConstMatrix ResidualStream::sum(const LayerContext& context) {
  if (pending_.delta.data != nullptr) apply(context, pending_, {}, residual_, {});
  pending_ = {};
  return residual_;
}

void ResidualStream::normalise(const LayerContext& context, NormId id) {
  apply(context, {}, normOf(context, id), residual_, residual_);
}

void ResidualStream::add(const LayerContext& context, LinearId last, float scale) {
  context.sumOverRanks(delta_);
  pending_ = {.delta = delta_, .bias = context.weights[last].bias, .scale = scale};
}

void ResidualStream::addNormed(const LayerContext& context, LinearId last, float scale, NormId id) {
  context.sumOverRanks(delta_);
  apply(context, {.bias = context.weights[last].bias}, normOf(context, id), delta_, delta_);
  pending_ = {.delta = delta_, .scale = scale};
}

void ResidualStream::normaliseSum(const LayerContext& context, LinearId last, float scale, NormId id) {
  context.sumOverRanks(delta_);
  apply(context, {.delta = delta_, .bias = context.weights[last].bias, .scale = scale}, normOf(context, id), residual_,
        residual_);
}

void ResidualStream::addParallel(const LayerContext& context, LinearId last, const ConstMatrix& other,
                                 LinearId last_of_other, float scale) {
  // Rank 0 alone adds the other block's bias before the ranks are summed up, so that the sum has it once.
  const bool adds_bias = context.links.tensor == nullptr || context.links.tensor->rank() == 0;
  const float* bias = adds_bias ? context.weights[last_of_other].bias : nullptr;
  apply(context, {.delta = other, .bias = bias}, {}, delta_, {});
  add(context, last, scale);
}

Matrix ResidualStream::finish(const LayerContext& context, int64_t count, bool has_norm) const {
  const auto gather = [&](const ConstMatrix& from, const Matrix& to) {
    context.backend.gatherRows({.x = from, .rows = RowsToGather::kLogits, .out = to}, context.step, context.stream);
  };
  const Matrix last = context.activations.hidden(count, residual_.cols);
  const Matrix normed = context.activations.wide(count, residual_.cols);
  gather(residual_, last);
  Addition addition = pending_;
  if (pending_.delta.data != nullptr) {
    gather(pending_.delta, normed);
    addition.delta = normed;
  }
  if (has_norm) {
    apply(context, addition, normOf(context, NormId::kFinal), last, normed);
    return normed;
  }
  if (addition.delta.data != nullptr) apply(context, addition, {}, last, {});
  return last;
}

}  // namespace chorus
