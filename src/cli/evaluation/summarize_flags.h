// Flags of TensorRT-LLM's summarize.py that change nothing here: they are accepted, or refused by name.
#pragma once

#include <span>

#include "cli/foreign_flags.h"

namespace chorus {

std::span<const ForeignFlag> summarizeFlags();

}  // namespace chorus
