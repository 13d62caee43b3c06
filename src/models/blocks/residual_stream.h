// The residual of a step, and the norms before and after the blocks that add to it.
#pragma once

#include <vector>

#include "models/blocks/layer_context.h"
#include "models/model_spec.h"

namespace chorus {

// The norms of a layer of this form.
std::vector<SlotNeed> residualNeeds(ResidualForm form, const NormSpec& norm, int64_t hidden_size);
// The weight and bias of one norm of `size` elements.
std::vector<SlotNeed> normNeeds(const NormSpec& norm, NormId id, int64_t size);

// The residual of a step. The output of a block waits until the next norm: one op adds it to the residual and applies
// the norm.
class ResidualStream {
 public:
  // A block's output that is not yet added to the residual: scale * (delta + bias).
  struct Addition {
    ConstMatrix delta;            // without data: nothing is to be added
    const float* bias = nullptr;  // [hidden], or null
    float scale = 1.0f;
  };

  // residual: [rows, hidden], the sum so far. Blocks write their output to delta, which has the same shape. `normed`
  // receives the output of the norms before blocks.
  ResidualStream(const NormSpec& norm, const Matrix& residual, const Matrix& delta, const Matrix& normed)
      : norm_(norm), residual_(residual), delta_(delta), normed_(normed) {}

  const Matrix& delta() const { return delta_; }

  // The input of a block with the norm `id` before it, and of one without a norm.
  ConstMatrix normed(const LayerContext& context, NormId id);
  ConstMatrix sum(const LayerContext& context);

  // Applies the norm `id` to the residual, before the first block.
  void normalise(const LayerContext& context, NormId id);

  // These functions end a block whose output is in delta(). They sum the output over the ranks and add scale times
  // (output + bias of `last`, the block's last linear) to the residual.
  void add(const LayerContext& context, LinearId last, float scale);
  // Applies the norm `id` to the output before it is added.
  void addNormed(const LayerContext& context, LinearId last, float scale, NormId id);
  // Applies the norm `id` to the residual after the output was added.
  void normaliseSum(const LayerContext& context, LinearId last, float scale, NormId id);
  // Ends two blocks at once. other: output of the second one, whose last linear is last_of_other.
  void addParallel(const LayerContext& context, LinearId last, const ConstMatrix& other, LinearId last_of_other,
                   float scale);

  // The `count` rows of the step that need logits: with the final norm, in activations.wide; or without it, in
  // activations.hidden.
  Matrix finish(const LayerContext& context, int64_t count, bool has_norm) const;

 private:
  // A norm with the step's groups of rows that have norms of their own.
  struct Norm {
    NormWeights base;
    GroupList<NormGroup> groups;
  };
  static Norm normOf(const LayerContext& context, NormId id);
  // residual += addition; then y = norm of residual, unless y has no data.
  void apply(const LayerContext& context, const Addition& addition, const Norm& norm, const Matrix& residual,
             const Matrix& y) const;

  NormSpec norm_;
  Matrix residual_, delta_, normed_;
  Addition pending_;
};

}  // namespace chorus
