// The worked example of CONTRIBUTING, "Adding an architecture".
#pragma once

#include "models/architecture.h"

namespace chorus::example {

Architecture troubadourArchitecture();  // TroubadourForCausalLM

}  // namespace chorus::example
