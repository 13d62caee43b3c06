// Mixtral.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture mixtralArchitecture();

}  // namespace chorus
