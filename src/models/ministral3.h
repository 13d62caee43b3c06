// Ministral 3: Mistral's layers, with YaRN and queries that grow with their position.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture ministral3Architecture();

}  // namespace chorus
