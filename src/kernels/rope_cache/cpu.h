// The CPU's rotation and cache write: rows over threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/rope_cache/rope_cache.h"

namespace chorus {

void ropeCacheCpu(const RopeCacheArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
