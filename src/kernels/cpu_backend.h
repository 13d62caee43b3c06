// The CPU backend: every op over the threads of its own pool, on one instruction set.
#pragma once

#include "kernels/backend.h"

namespace chorus {

// Throws Error(kInvalidArgument) for an instruction set that this machine lacks, naming those it has.
std::unique_ptr<Backend> createCpuBackend(const BackendOptions& options);

}  // namespace chorus
