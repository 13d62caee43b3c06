// RoPE and KV-cache write on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/rope_cache/rope_cache.h"

namespace chorus {

void ropeCacheCpu(const RopeCacheArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
