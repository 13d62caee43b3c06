#include "models/decoder.h"

#include "base/error.h"
#include "models/blocks/attention.h"
#include "models/blocks/embedding.h"
#include "models/blocks/mlp.h"
#include "models/blocks/residual_stream.h"

namespace chorus {
namespace {

// Both blocks of a layer read the same residual, and one addition ends both. The MLP runs first, because attention
// overwrites the output of the norm.
void runParallel(const LayerContext& context, const LayerSpec& spec, const NormSpec& norm, const PositionTables& tables,
                 const KvLayer& kv, ResidualStream& residual) {
  const bool shares_norm = spec.residual == ResidualForm::kParallelShared;
  const ConstMatrix mlp_input = residual.normed(context, shares_norm ? NormId::kAttentionIn : NormId::kMlpIn);
  runMlp(context, spec.mlp, mlp_input, residual.delta());
  const ConstMatrix x = shares_norm ? mlp_input : residual.normed(context, NormId::kAttentionIn);
  const Matrix attended = context.activations.wide(x.rows, x.cols);
  runAttention(context, spec.attention, norm, tables, kv, x, attended);
  residual.addParallel(context, LinearId::kProj, attended, LinearId::kDense, spec.residual_scale);
}

// Ends a block of a layer whose blocks run one after the other. after: the norm after the block, if the form has one.
void endBlock(const LayerContext& context, const LayerSpec& spec, LinearId last, NormId after,
              ResidualStream& residual) {
  switch (spec.residual) {
    case ResidualForm::kSandwich:
    case ResidualForm::kPost:
      return residual.addNormed(context, last, spec.residual_scale, after);
    case ResidualForm::kNormedSum:
      return residual.normaliseSum(context, last, spec.residual_scale, after);
    default:
      return residual.add(context, last, spec.residual_scale);
  }
}

void runLayer(const LayerContext& context, const LayerSpec& spec, const NormSpec& norm, const PositionTables& tables,
              const KvLayer& kv, ResidualStream& residual) {
  if (isParallel(spec.residual)) return runParallel(context, spec, norm, tables, kv, residual);
  const bool norm_first = spec.residual == ResidualForm::kPre || spec.residual == ResidualForm::kSandwich;
  const auto inputOf = [&](NormId id) { return norm_first ? residual.normed(context, id) : residual.sum(context); };

  runAttention(context, spec.attention, norm, tables, kv, inputOf(NormId::kAttentionIn), residual.delta());
  endBlock(context, spec, LinearId::kDense, NormId::kAttentionOut, residual);
  runMlp(context, spec.mlp, inputOf(NormId::kMlpIn), residual.delta());
  endBlock(context, spec, LinearId::kProj, NormId::kMlpOut, residual);
}
}  // namespace

Decoder::Decoder(ModelSpec spec, const VocabularyShape& vocabulary, ModelWeights weights,
                 std::vector<PositionTables> tables, const RankLinks& links)
    : spec_(std::move(spec)),
      vocabulary_(vocabulary),
      weights_(std::move(weights)),
      tables_(std::move(tables)),
      links_(links) {
  checkWeights();
}

void Decoder::checkWeights() const {
  const auto append = [](std::vector<SlotNeed>& all, const std::vector<SlotNeed>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    std::vector<SlotNeed> needs = residualNeeds(layer.residual, spec_.norm, spec_.hidden_size);
    append(needs, attentionNeeds(layer.attention, spec_.hidden_size));
    append(needs, mlpNeeds(layer.mlp, spec_.hidden_size));
    checkSlots(weights_.layers.at(i), needs, fmt::format("of layer {}", i));
  }
  std::vector<SlotNeed> outside;
  if (links_.firstStage()) append(outside, embeddingNeeds(spec_));
  if (links_.lastStage()) append(outside, headNeeds(spec_, vocabulary_.head_rows));
  checkSlots(weights_.outside, outside, "outside layers");
}

void Decoder::run(const StepInput& input, std::span<const KvLayer> kv, const DecoderActivations& activations,
                  const AdapterGroups& adapters, Backend& backend, StepContext& step, Stream stream,
                  const LogitsSink& sink) const {
  const int64_t width = logitsWidth(input, vocabulary_.size);
  if (width > vocabulary_.size + vocabulary_.added_tokens) {
    fail(ErrorCode::kInternal, "a step's adapters add {} tokens, more than the session's {}", width - vocabulary_.size,
         vocabulary_.added_tokens);
  }
  const auto contextOf = [&](int32_t layer) {
    return LayerContext{backend, step, stream, adapters, activations, links_, weights_.at(layer), layer};
  };
  const LayerContext outside = contextOf(kOutsideLayers);
  const auto rows = static_cast<int64_t>(input.tokens.size());
  const Matrix sum = activations.residual(rows);
  if (links_.firstStage()) {
    runEmbedding(outside, spec_.embedding, vocabulary_.size, sum);
  } else {
    links_.pipeline->receive(sum, links_.pipeline->rank() - 1, stream);
  }

  ResidualStream residual(spec_.norm, sum, activations.delta(rows), activations.hidden(rows, spec_.hidden_size));
  if (links_.firstStage() && spec_.embedding.norm) residual.normalise(outside, NormId::kEmbedding);
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    runLayer(contextOf(static_cast<int32_t>(i)), spec_.layers[i], spec_.norm, tables_[i], kv[i], residual);
  }

  if (links_.lastStage()) {
    return runHead(outside, spec_, vocabulary_, std::ssize(input.logits_rows), residual, width, sink);
  }
  residual.sum(outside);
  links_.pipeline->send(sum, links_.pipeline->rank() + 1, stream);
}

}  // namespace chorus
