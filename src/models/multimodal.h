// Models of text and images that are served as their text model: Gemma 3, Mistral 3, and the VL models of Qwen.
#pragma once

#include <vector>

#include "models/architecture.h"

namespace chorus {

std::vector<Architecture> multimodalArchitectures();

}  // namespace chorus
