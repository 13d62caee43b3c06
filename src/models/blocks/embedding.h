// The first op of the network: from token ids to the residual.
#pragma once

#include <vector>

#include "models/blocks/layer_context.h"
#include "models/model_spec.h"

namespace chorus {

// The slots of the embedding and of the norm after it.
std::vector<SlotNeed> embeddingNeeds(const ModelSpec& spec);

// residual = the embeddings of the step's tokens, [rows, hidden], without the norm after the embedding. vocab: number
// of the model's tokens. Uses activations.delta and wide.
void runEmbedding(const LayerContext& context, const EmbeddingSpec& spec, int64_t vocab, const Matrix& residual);

}  // namespace chorus
