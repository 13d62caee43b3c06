// The CPU backend with memory as strict as a device's, for tests: its memory, weights included, is accessible only
// inside its ops, prepare, upload and download. Host code that reads or writes it elsewhere dies with a signal, and so
// does an op that runs past the end of a buffer or uses a freed one. Opening and closing the memory costs tens of
// microseconds per op.
#pragma once

#include "kernels/backend.h"

namespace chorus {

// Like createCpuBackend(). Each backend has its own memory arena.
std::unique_ptr<Backend> createGuardedBackend(const BackendOptions& options);

}  // namespace chorus
