// The CPU backend as strict as a device: its memory, weights included, cannot be touched outside an op, prepare, upload
// or download of it. Host code that reads or writes device memory dies there with a signal; so does an op that runs
// past the end of a buffer or uses a freed one. For tests: opening and closing costs tens of microseconds an op.
#pragma once

#include "kernels/backend.h"

namespace chorus {

// As createCpuBackend. Each backend has memory of its own.
std::unique_ptr<Backend> createGuardedBackend(const BackendOptions& options);

}  // namespace chorus
