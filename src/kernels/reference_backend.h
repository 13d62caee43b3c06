// The reference backend: plain float32 loops on one thread, used to find out whether a kernel or a model is wrong.
#pragma once

#include "kernels/backend.h"

namespace chorus {

std::unique_ptr<Backend> createReferenceBackend();

}  // namespace chorus
