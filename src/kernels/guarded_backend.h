// The CPU backend with memory as strict as a device's, for tests. The addresses of its memory, weights included, are
// never accessible: host code that reads or writes them dies with a signal. Its ops, upload and download translate
// them. An op that runs past the end of a buffer or uses a freed one dies too.
#pragma once

#include "kernels/backend.h"

namespace chorus {

// Like createCpuBackend(). Each backend has its own memory.
std::unique_ptr<Backend> createGuardedBackend(const BackendOptions& options);

}  // namespace chorus
