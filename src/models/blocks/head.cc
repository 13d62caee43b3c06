#include "models/blocks/head.h"

#include <algorithm>

namespace chorus {
namespace {

bool projects(const ModelSpec& spec) { return spec.embedding.width != spec.hidden_size; }

// Multiplies x by kProjectOut. x is in activations.wide or activations.hidden; the result is in the other of the two.
Matrix projectOut(const LayerContext& context, const Matrix& x, int64_t width, bool x_is_wide) {
  const Matrix out = x_is_wide ? context.activations.hidden(x.rows, width) : context.activations.wide(x.rows, width);
  context.linear(LinearId::kProjectOut, x, out);
  return out;
}

// The columns of this rank's product are its share of the model's vocabulary and then the tokens that adapters add. The
// shares of all ranks are gathered. The added tokens are the same on every rank and are copied behind the gathered
// columns. first: index of row 0 of `normed` in StepInput::logits_rows.
Matrix computeLogits(const LayerContext& context, const VocabularyShape& vocabulary, const ConstMatrix& normed,
                     int64_t width, int32_t first) {
  const Matrix logits = context.activations.logits(normed.rows, width);
  const int64_t added = width - vocabulary.size;
  const int64_t share = context.weights[LinearId::kHead].weight.out;
  Communicator* ranks = context.links.tensor;
  const Matrix part = ranks == nullptr ? logits : context.activations.logitsPart(normed.rows, share + added);
  context.linear(LinearId::kHead, normed, part, first);
  if (const float* bias = context.weights[LinearId::kHead].bias) {
    // rms_norm without an output y only adds the bias to the logits. Tokens that adapters add have no bias.
    context.backend.rmsNorm({.residual = columnsOf(part, 0, share), .bias = bias}, context.step, context.stream);
  }
  if (ranks == nullptr) return logits;
  ranks->allGatherColumns(columnsOf(part, 0, share), columnsOf(logits, 0, vocabulary.size), context.stream);
  if (added > 0) {
    context.backend.gatherRows({.x = columnsOf(part, share, added),
                                .rows = RowsToGather::kAll,
                                .out = columnsOf(logits, vocabulary.size, added)},
                               context.step, context.stream);
  }
  return logits;
}

void scaleLogits(const LayerContext& context, const HeadSpec& spec, const Matrix& logits) {
  const auto scale = [&](float factor) {
    if (factor != 1.0f) context.backend.scale({.x = logits, .factor = factor}, context.step, context.stream);
  };
  if (spec.softcap == 0) return scale(spec.scale);
  scale(spec.scale / spec.softcap);
  context.backend.activation({.x = logits, .kind = ActivationKind::kTanh}, context.step, context.stream);
  scale(spec.softcap);
}
}  // namespace

std::vector<SlotNeed> headNeeds(const ModelSpec& spec, int64_t head_rows) {
  std::vector<SlotNeed> needs;
  if (spec.head.norm) needs = normNeeds(spec.norm, NormId::kFinal, spec.hidden_size);
  if (projects(spec)) needs.push_back({slotOf(LinearId::kProjectOut), spec.embedding.width, spec.hidden_size});
  needs.push_back({slotOf(LinearId::kHead), head_rows, spec.embedding.width});
  if (spec.head.bias) needs.push_back({slotOf(LinearId::kHead).bias(), head_rows});
  return needs;
}

// Computes the last residual sum, the final norm and the logits, but only of the rows that need logits.
void runHead(const LayerContext& context, const ModelSpec& spec, const VocabularyShape& vocabulary, int64_t wanted,
             ResidualStream& residual, int64_t width, const LogitsSink& sink) {
  if (wanted == 0) return;
  Matrix normed = residual.finish(context, wanted, spec.head.norm);
  if (projects(spec)) normed = projectOut(context, normed, spec.embedding.width, spec.head.norm);
  for (int64_t first = 0; first < wanted; first += context.activations.logitsRows()) {
    const RowRange rows{static_cast<int32_t>(first),
                        static_cast<int32_t>(std::min(wanted, first + context.activations.logitsRows()))};
    const Matrix logits = computeLogits(context, vocabulary, rowsOf(normed, rows), width, rows.begin);
    scaleLogits(context, spec.head, logits);
    sink(first, logits);
  }
}

}  // namespace chorus
