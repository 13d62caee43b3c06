// The CPU backend: runs every op on the threads of its own pool, with one instruction set.
#pragma once

#include "kernels/backend.h"

namespace chorus {

// Throws Error(kInvalidArgument) for an instruction set that this machine lacks, naming those it has.
std::unique_ptr<Backend> createCpuBackend(const BackendOptions& options);

}  // namespace chorus
