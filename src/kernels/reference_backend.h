// The reference backend: plain float32 loops on one thread, to tell a wrong kernel from a wrong model.
#pragma once

#include "kernels/backend.h"

namespace chorus {

std::unique_ptr<Backend> createReferenceBackend();

}  // namespace chorus
