// The worked example of CONTRIBUTING.md, section "Adding an architecture".
#pragma once

#include "models/architecture.h"

namespace chorus::example {

Architecture troubadourArchitecture();  // TroubadourForCausalLM

}  // namespace chorus::example
