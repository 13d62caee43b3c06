// Loads one rank's weights from its file to the slots that the decoder reads.
#pragma once

#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/model_weights.h"

namespace chorus {

// Returns views of the mapped file. The engine must outlive them.
ModelWeights loadWeights(const Engine& engine);

// Returns the same weights in the form that the backend's ops read. Shows its progress as "loading".
ModelWeights importWeights(ModelWeights weights, const Engine& engine, Backend& backend);

}  // namespace chorus
