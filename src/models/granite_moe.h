// Granite's mixtures of experts, also with a shared expert that takes every row.
#pragma once

#include "models/architecture.h"

namespace chorus {

Architecture graniteMoeArchitecture();
Architecture graniteMoeSharedArchitecture();

}  // namespace chorus
