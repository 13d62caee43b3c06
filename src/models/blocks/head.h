// The last ops of the network: from the residual to logits.
#pragma once

#include <functional>
#include <vector>

#include "models/blocks/layer_context.h"
#include "models/blocks/residual_stream.h"
#include "models/model_spec.h"

namespace chorus {

std::vector<SlotNeed> headNeeds(const ModelSpec& spec, int64_t head_rows);

// Receives rows [first, first + logits.rows) of a step's logits, which are in device memory and valid until the
// function returns.
using LogitsSink = std::function<void(int64_t first, const ConstMatrix& logits)>;

// Computes the logits of the `wanted` rows of the step that need some, `width` columns each, and passes them to the
// sink in order. Each call of the sink has at most activations.logitsRows() rows.
void runHead(const LayerContext& context, const ModelSpec& spec, const VocabularyShape& vocabulary, int64_t wanted,
             ResidualStream& residual, int64_t width, const LogitsSink& sink);

}  // namespace chorus
