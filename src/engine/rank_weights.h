// One rank's weights, from its file to the slots that the decoder reads.
#pragma once

#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/model_weights.h"

namespace chorus {

// Views of the mapped file, which the engine must outlive.
ModelWeights loadWeights(const Engine& engine);

// The same weights as the backend's ops see them. Shows its progress as "loading".
ModelWeights importWeights(ModelWeights weights, const Engine& engine, Backend& backend);

}  // namespace chorus
