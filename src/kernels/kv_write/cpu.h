// RoPE and KV-cache write on the CPU; rows are divided among threads.
#pragma once

#include "kernels/cpu/workspace.h"
#include "kernels/kv_write/kv_write.h"

namespace chorus {

void kvWriteCpu(const KvWriteArgs& args, const StepBatch& batch, CpuWorkspace& workspace);

}  // namespace chorus
