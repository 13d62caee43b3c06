#include "models/blocks/embedding.h"

#include "models/blocks/residual_stream.h"

namespace chorus {
namespace {

// out = the rows of the step's tokens. A rank holds the whole table, some of its columns, or some of its rows; in the
// last case its result is zero for the tokens of other ranks.
void embedTokens(const LayerContext& context, int64_t vocab, const Matrix& out) {
  const auto& [table, cols] = context.weights[TableId::kTokens];
  const bool some_columns = cols < out.cols;
  const Matrix part = some_columns ? context.activations.delta(out.rows, cols) : out;
  context.backend.embedding({.table = table, .out = part, .groups = context.adapters.embedding()}, context.step,
                            context.stream);
  if (some_columns) {
    context.links.tensor->allGatherColumns(part, out, context.stream);
  } else if (table.vocab < vocab) {
    context.sumOverRanks(out);
  }
}
}  // namespace

std::vector<SlotNeed> embeddingNeeds(const ModelSpec& spec) {
  const EmbeddingSpec& embedding = spec.embedding;
  const int64_t hidden = spec.hidden_size;
  std::vector<SlotNeed> needs;
  if (embedding.norm) needs = normNeeds(spec.norm, NormId::kEmbedding, hidden);
  // A rank may hold some of the rows or of the columns of the token table.
  needs.push_back({slotOf(TableId::kTokens), kAnySize, kAnySize});
  if (embedding.width != hidden) needs.push_back({slotOf(LinearId::kProjectIn), hidden, embedding.width});
  if (embedding.positions) needs.push_back({slotOf(TableId::kPositions), kAnySize, hidden});
  return needs;
}

void runEmbedding(const LayerContext& context, const EmbeddingSpec& spec, int64_t vocab, const Matrix& residual) {
  const bool projects = spec.width != residual.cols;
  const Matrix tokens = projects ? context.activations.wide(residual.rows, spec.width) : residual;
  embedTokens(context, vocab, tokens);
  if (spec.scale != 1.0f) {
    context.backend.scale({.x = tokens, .factor = spec.scale}, context.step, context.stream);
  }
  if (projects) context.linear(LinearId::kProjectIn, tokens, residual);
  if (spec.positions) {
    context.backend.positionEmbedding({.table = context.weights[TableId::kPositions].table, .x = residual},
                                      context.step, context.stream);
  }
}

}  // namespace chorus
