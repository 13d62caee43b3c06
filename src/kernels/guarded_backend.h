// The CPU backend with memory as strict as a device's, for tests. The addresses of its memory, weights included, are
// never accessible: host code that reads or writes them dies with a signal. Its functions translate the addresses that
// they are given; one that is not of its memory ends the process with a message. An op that runs past the end of a
// buffer or uses a freed one dies too. What an op's threads do with memory after the op has returned is not checked.
#pragma once

#include "kernels/backend.h"

namespace chorus {

// Like createCpuBackend(). Each backend has its own memory.
std::unique_ptr<Backend> createGuardedBackend(const BackendOptions& options);

}  // namespace chorus
